// SPDX-License-Identifier: Apache-2.0
// What a process asks of the CUDA driver, counted by CUPTI's callbacks whoever asks, and how long
// graphs keep the device busy. For tests alone: the engine's own counters must not be their only
// witness. Built without CUPTI, it is there but not available.
#pragma once

#include <cstdint>

namespace fathom::cuda {

struct DriverCalls {
  int64_t graph_launches = 0;
  int64_t kernel_launches = 0;  // one by one, or recorded by a capture
  int64_t copies = 0;           // and memory sets
  int64_t captures = 0;         // begun, and graphs instantiated
};

// One at a time.
class DriverCallCounter {
 public:
  static bool available();
  DriverCallCounter();
  ~DriverCallCounter();
  DriverCallCounter(const DriverCallCounter&) = delete;
  DriverCallCounter& operator=(const DriverCallCounter&) = delete;
  DriverCalls take();  // since the last time
};

struct GraphTimes {
  int64_t n_graphs = 0;
  double busy_ns = 0;  // from a graph's first node to its last, summed up
  double span_ns = 0;  // from the first graph's begin to the last one's end
};

// REQUIRES: made before the graphs that it is to see, and no DriverCallCounter beside it.
class GraphTrace {
 public:
  GraphTrace();
  ~GraphTrace();
  GraphTrace(const GraphTrace&) = delete;
  GraphTrace& operator=(const GraphTrace&) = delete;
  GraphTimes take();  // of the graphs since the last time; the device has done them
};

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// What a step did on its device, kernel by kernel. A backend that can watch its device (CUDA: CUPTI
// records of graph replays) offers a TraceSource; on a backend whose ops run one after the other on
// the host, measure/ makes the same records out of op scopes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/op_scope.hpp"

namespace fathom {

// One kernel of one step. Times are of one clock within a window; kernels may overlap.
struct TraceRecord {
  std::string op;      // an OpTable name
  int layer = -1;      // -1 outside the layers
  int ordinal = 0;     // how many launches the same (layer, op) made before this one in its step
  std::string kernel;  // the kernel's symbol; the op's name where an op is not made of kernels
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::array<int, 3> grid{};  // all 0 where an op is not made of kernels
  std::array<int, 3> block{};
  int64_t shared_bytes = 0;  // static and dynamic, a block
  int registers = 0;         // a thread
};

struct TraceStep {
  std::vector<TraceRecord> records;  // by start_ns
};

// All that was seen between start and stop. A window with lost or invalid records proves nothing.
struct TraceWindow {
  std::vector<TraceStep> steps;
  int64_t n_lost = 0;     // records that the device says it dropped, or that no step accounts for
  int64_t n_invalid = 0;  // records without times, or that end before they start
  std::string problem;    // empty, or why nothing could be seen
};

struct RawTrace;  // device/graph_trace.hpp

class TraceSource {
 public:
  virtual ~TraceSource() = default;
  // Told of each op while a step is captured (Model::set_capture_scope_sink): what names the
  // records of its replays.
  virtual OpScopeSink& scopes() = 0;
  virtual void start() = 0;
  // REQUIRES: the device is idle. `n_steps` steps of equal work ran since start().
  virtual TraceWindow stop(int n_steps) = 0;
  // The last window's records as the device gave them; null where there are none to keep.
  virtual const RawTrace* raw() const { return nullptr; }
};

}  // namespace fathom

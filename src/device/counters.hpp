// SPDX-License-Identifier: Apache-2.0
// Hardware counters of a step, op by op. They come from steps that run op by op and as often as the
// counters need passes: their structure is the step's, their times are not.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/op_scope.hpp"

namespace fathom {

// What a logical counter is on this device.
struct Counter {
  std::string name;    // as asked for: "dram_read_bytes"
  std::string unit;    // "bytes", "%", "cycles", ...
  std::string metric;  // the device's own name; empty where it has none
  double scale = 1;    // from the metric to the unit
  std::string note;    // why there is none, or how it differs from what its name says
};

struct OpCounters {
  std::string op;
  int layer = -1;
  std::vector<std::optional<double>> values;  // of each counter; none where the device has none
};

struct CounterRun {
  std::vector<Counter> counters;  // as asked for
  std::vector<OpCounters> ops;    // in the order in which they ran
  int n_passes = 0;
  std::string problem;  // empty, or why there are no ops
};

class CounterSource {
 public:
  virtual ~CounterSource() = default;
  // Names of all logical counters, and of three sets that are worth a run each.
  virtual std::vector<std::string> names() const = 0;
  virtual std::vector<std::string> core() const = 0;    // time, DRAM, occupancy, idle SMs, pipes
  virtual std::vector<std::string> cache() const = 0;   // L2 and how bytes come to the SMs
  virtual std::vector<std::string> stalls() const = 0;  // reasons for which warps wait
  // Where ops begin and end, while collect() runs a step.
  virtual OpScopeSink& scopes() = 0;
  // Runs `step`, which does the same work each time and waits for the device, once or more. Throws
  // Error{usage} for unknown names; what the device refuses is said in the result.
  virtual CounterRun collect(std::span<const std::string> names,
                             const std::function<void()>& step) = 0;
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Where the warps of an op wait, instruction by instruction, and for what. A warp is sampled at the
// instruction that cannot issue, the consumer; for a wait on memory the loads that it may wait for
// are named too. They are candidates: loads share the hardware's few barriers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/op_scope.hpp"

namespace fathom {

struct CodePlace {
  int64_t offset = 0;       // bytes from the kernel's first instruction
  std::string instruction;  // "LDG", or its number where it has no known name
  std::string file;         // empty without line information
  int line = 0;
};

struct StallCount {
  std::string reason;  // "long_scoreboard"
  int64_t samples = 0;
};

struct StalledPlace {
  CodePlace place;
  int64_t samples = 0;              // of warps that could not issue here
  std::vector<StallCount> reasons;  // most samples first
  // Of what long_scoreboard, where it is a reason, waits for here.
  std::vector<CodePlace> producers;
  std::string problem;  // why there are none
};

struct KernelStalls {
  std::string kernel;
  int64_t samples = 0;
  std::vector<StallCount> reasons;   // most samples first
  std::vector<StalledPlace> places;  // most samples first
};

struct StallProfile {
  std::vector<KernelStalls> kernels;  // most samples first
  int64_t n_samples = 0;              // of all, and of these
  int64_t n_dropped = 0;
  int64_t n_foreign = 0;  // of kernels that are not this program's
  bool buffer_full = false;
  std::string problem;  // empty, or why there is nothing or what is missing
};

class StallSource {
 public:
  virtual ~StallSource() = default;
  // Where ops begin and end, while sample() runs a step.
  virtual OpScopeSink& scopes() = 0;
  // Samples the warps of all ops named `op` while it runs `step` n_steps times, op by op.
  virtual StallProfile sample(const std::string& op, int n_steps,
                              const std::function<void()>& step) = 0;
};

}  // namespace fathom

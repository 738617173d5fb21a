// SPDX-License-Identifier: Apache-2.0
// The kernels of an engine's decode step, op by op: its graph's own nodes, named by the scopes that
// were open when they were captured. Nothing of it is left in a replay.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/op_scope.hpp"
#include "device/device_api.hpp"

namespace fathom::cli {

// To be given to Model::set_capture_scope_sink before the first step; must outlive the model.
class EngineKernels : public OpScopeSink {
 public:
  explicit EngineKernels(const DeviceApi& device) : device_(device) {}

  // Runs fn, in which steps are captured; the newest graph is kept.
  void watch(const std::function<void()>& fn);
  // Of a call of the op in its first layer; empty where none was captured.
  std::vector<KernelLaunch> call_of(const std::string& op) const;

  void begin(const OpTag& tag, const Cost& cost) override;
  void end() override;

 private:
  struct Call {
    std::string op;
    int layer;
    int64_t first, end;  // of the graph's kernels
  };
  const DeviceApi& device_;
  std::vector<Call> calls_;  // of the graph that is or was captured last
  std::vector<KernelLaunch> kernels_;
};

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Scopes become ranges of the kernels that the capture has recorded so far.
#include "cli/engine_kernels.hpp"

#include "base/check.hpp"

namespace fathom::cli {

void EngineKernels::watch(const std::function<void()>& fn) {
  if (!device_.watch_captures) return fn();
  const auto graphs = device_.watch_captures(fn);
  if (!graphs.empty()) kernels_ = graphs.back();
}

void EngineKernels::begin(const OpTag& tag, const Cost&) {
  if (!device_.captured_kernels) return;
  const int64_t at = device_.captured_kernels();
  if (!calls_.empty() && at < calls_.back().end) calls_.clear();  // another graph begins
  calls_.push_back({tag.op, tag.layer, at, at});
}

void EngineKernels::end() {
  if (!calls_.empty()) calls_.back().end = device_.captured_kernels();
}

std::vector<KernelLaunch> EngineKernels::call_of(const std::string& op) const {
  for (const Call& call : calls_) {
    if (call.op != op || call.layer > 0) continue;
    FATHOM_CHECK(call.end <= static_cast<int64_t>(kernels_.size()),
                 "a graph has the kernels that its capture recorded");
    return {kernels_.begin() + call.first, kernels_.begin() + call.end};
  }
  return {};
}

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Whether the figures of an attribution can be trusted.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/decomposition.hpp"
#include "report/attribution_report.hpp"

namespace fathom::cli {

// What is known beside the report when its gates are judged.
struct GateInputs {
  uint64_t unwatched_hash[2] = {0, 0};  // logits of a step at each anchor
  uint64_t watched_hash[2] = {0, 0};
  int64_t kv_token_bytes = 0;      // cache bytes of one token
  int64_t step_bytes[2] = {0, 0};  // declared by a step at each anchor
};

std::vector<report::Gate> attribution_gates(const report::AttributionReport& report,
                                            const GateInputs& inputs);

// Of windows that prove nothing: there is no attribution to judge.
report::Gate broken_window_gate(const std::string& problem);

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// How the next token is drawn from a row of logits.
#pragma once

#include <cstdint>

namespace fathom {

struct LogitBias {
  int32_t token;
  float bias;  // added to the logit; -inf forbids the token
  bool operator==(const LogitBias&) const = default;
};

struct SamplerParams {
  float temperature = 0.0f;     // 0 = greedy
  int32_t top_k = 0;            // 0 = all
  float top_p = 1.0f;           // in (0, 1]
  float min_p = 0.0f;           // in [0, 1)
  float repeat_penalty = 1.0f;  // > 0; positive logits are divided, others multiplied
  int32_t repeat_last_n = 64;   // tokens looked back at; 0 = none, -1 = all
  uint64_t seed = 0;
  bool operator==(const SamplerParams&) const = default;
};

}  // namespace fathom

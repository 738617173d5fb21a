// SPDX-License-Identifier: Apache-2.0
// The numbers of the sampling chain, one value at a time: the same bits on host and device. Their
// order of operations, and that of the sums over them, is the contract of sample.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/hd.hpp"
#include "tensor/portable_math.hpp"

namespace fathom {

// Sums run over blocks of so many weights in order, and then over the blocks in order.
inline constexpr int kSampleSumBlock = 256;

// NaN would break the order of candidates, so it ranks below everything.
FATHOM_HD inline float ranked_logit(float logit) { return logit == logit ? logit : -INFINITY; }

FATHOM_HD inline float penalised_logit(float logit, float repeat_penalty) {
  return logit > 0 ? logit / repeat_penalty : logit * repeat_penalty;
}

// What exp is taken of. REQUIRES: best finite, temperature > 0.
FATHOM_HD inline float weight_exponent(float logit, float best, float temperature) {
  return (logit - best) / temperature;
}
FATHOM_HD inline float candidate_weight(float logit, float best, float temperature) {
  return portable_exp(weight_exponent(ranked_logit(logit), best, temperature));
}
// Whether the weight is above zero. A candidate without one changes no sum and is never drawn.
FATHOM_HD inline bool has_weight(float logit, float best, float temperature) {
  return !(weight_exponent(ranked_logit(logit), best, temperature) < ExpConstants::kMin);
}

// Ascending keys are descending logits; both zeros have one key.
FATHOM_HD inline uint32_t logit_key(float logit) {
  const float ranked = ranked_logit(logit);
  const uint32_t bits = ranked == 0.0f ? 0u : __builtin_bit_cast(uint32_t, ranked);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}
// One number per candidate, in the order of preference: ties go to the lower id.
FATHOM_HD inline uint64_t candidate_key(float logit, int32_t id) {
  return uint64_t{logit_key(logit)} << 32 | static_cast<uint32_t>(id);
}
FATHOM_HD inline int32_t candidate_id(uint64_t key) { return static_cast<int32_t>(key); }

// Of at most kSampleSumBlock weights.
FATHOM_HD inline double sum_in_order(const float* weights, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(weights[i]);
  return sum;
}

}  // namespace fathom

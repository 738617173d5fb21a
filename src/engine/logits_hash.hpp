// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash over the bits of rows of logits: two runs that agree in it computed the same
// numbers. A row enters it as its sum, which a device adds up where the logits lie.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/sample/logits_sum.hpp"

namespace fathom::engine {

// The hash of rows that `seed` stands for and then one of n logits.
inline uint64_t fold_logits(uint64_t seed, uint64_t sum, uint64_t n) {
  constexpr uint64_t kPrime = 0x9E3779B185EBCA87u;
  const auto mix = [](uint64_t state, uint64_t word) {
    return std::rotl(state ^ word, 29) * kPrime;
  };
  const uint64_t hash = mix(mix(mix(seed, n), sum ^ sum >> 32), sum);
  return hash ^ hash >> 29;
}

inline uint64_t logits_hash(std::span<const float> logits, uint64_t seed = 0) {
  return fold_logits(seed, logits_sum(logits), logits.size());
}

}  // namespace fathom::engine

// SPDX-License-Identifier: Apache-2.0
// A 64-bit sum over the bits of a row of logits that host and device add up in any order: NH of
// UMAC (Black et al., CRYPTO 1999) with keys that follow the index. A change of one value changes
// it, but for one chance in 2^32.
//   sum over i of (bits[2i] + key(2i) mod 2^32) * (bits[2i+1] + key(2i+1) mod 2^32)   mod 2^64
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "tensor/kv_view.hpp"  // FATHOM_HD

namespace fathom {

FATHOM_HD constexpr uint32_t logits_sum_key(uint32_t index) { return (index + 1) * 0x9E3779B1u; }

// Of values `index` and `index` + 1; the second is 0 behind the last.
FATHOM_HD constexpr uint64_t logits_sum_term(uint32_t index, uint32_t bits, uint32_t next_bits) {
  const uint32_t a = bits + logits_sum_key(index), b = next_bits + logits_sum_key(index + 1);
  return uint64_t{a} * b;
}

inline uint64_t logits_sum(std::span<const float> logits) {
  const size_t n = logits.size();
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < n; i += 2) {
    sum += logits_sum_term(static_cast<uint32_t>(i), std::bit_cast<uint32_t>(logits[i]),
                           std::bit_cast<uint32_t>(logits[i + 1]));
  }
  if (n % 2) {
    sum += logits_sum_term(static_cast<uint32_t>(n - 1), std::bit_cast<uint32_t>(logits[n - 1]), 0);
  }
  return sum;
}

}  // namespace fathom

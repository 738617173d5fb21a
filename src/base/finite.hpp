// SPDX-License-Identifier: Apache-2.0
// Is every value a finite number? Over the bits and without an early exit, so that it runs at the
// speed of memory.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace fathom {

inline bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000u;  // all ones in NaN and infinities
  uint32_t found = 0;
  for (const float value : values) {
    found |= uint32_t{(std::bit_cast<uint32_t>(value) & kExponent) == kExponent};
  }
  return found == 0;
}

}  // namespace fathom

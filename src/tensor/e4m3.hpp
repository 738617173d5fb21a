// SPDX-License-Identifier: Apache-2.0
// E4M3, the 8-bit float of "OCP 8-bit Floating Point Specification" 1.0, the same on host and
// device: sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, NaN is 0x7f and 0xff;
// largest value 448, least normal 2^-6, least subnormal 2^-9. And a cache's scales of such codes
// (tensor/kv_view.hpp).
#pragma once

#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

inline constexpr float kE4m3Max = 448.0f;

FATHOM_HD constexpr float e4m3_to_f32(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return __builtin_bit_cast(float, sign | 0x7fc00000u);
  if (magnitude < 8) {  // subnormal or zero
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign ? -value : value;
  }
  return __builtin_bit_cast(float, sign | ((magnitude << 20) + (120u << 23)));
}

// Rounds to nearest even and saturates at 448; NaN stays NaN.
FATHOM_HD constexpr uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 24) & 0x80;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7e);  // 448 and above
  if (magnitude < 0x3c800000u) {  // below 2^-6: 2^14, whose unit is 2^-9, does the rounding
    const float shifted = __builtin_bit_cast(float, magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (__builtin_bit_cast(uint32_t, shifted) & 0xf));
  }
  const uint32_t rebased = magnitude - (120u << 23);
  return static_cast<uint8_t>(sign | ((rebased + 0x7ffff + ((rebased >> 20) & 1)) >> 20));
}

// Four codes, none NaN: 1/256 of those in the even or the odd bytes, as two f16.
FATHOM_HD constexpr uint32_t e4m3_even_f16(uint32_t codes) {
  return ((codes << 7) & 0x3f803f80u) | ((codes << 8) & 0x80008000u);
}
FATHOM_HD constexpr uint32_t e4m3_odd_f16(uint32_t codes) {
  return ((codes >> 1) & 0x3f803f80u) | (codes & 0x80008000u);
}

// Of values whose largest magnitude is `largest`; NaN where that is not finite.
FATHOM_HD constexpr float e4m3_scale(float largest) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  if ((__builtin_bit_cast(uint32_t, largest) & 0x7fffffffu) >= kInfinity)
    return __builtin_bit_cast(float, 0x7fc00000u);
  return largest / kE4m3Max;
}
FATHOM_HD constexpr uint8_t e4m3_code(float value, float scale) {
  if (!(scale > 0.0f)) return 0;  // NaN too
  return f32_to_e4m3(value / scale);
}

}  // namespace fathom

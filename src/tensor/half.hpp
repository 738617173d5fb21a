// SPDX-License-Identifier: Apache-2.0
// Scalar conversions between f32 and the 16-bit floats and E8M0 scales, the same on host and
// device. Rounding is to nearest even; NaN stays NaN. The builtin casts stand for std::bit_cast,
// which is a host function to nvcc.
#pragma once

#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

FATHOM_HD constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa << 13));
  return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
}

FATHOM_HD constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity from 65520 on
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal or zero
    if (magnitude < 0x33000000u) return sign;           // below 2^-25
    const uint32_t exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126 - exponent;  // 14..24
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    const uint32_t up = rest > half || (rest == half && (kept & 1));
    return static_cast<uint16_t>(sign | (kept + up));
  }
  const uint32_t rebased = magnitude - 0x38000000u;
  const uint32_t kept = rebased >> 13;
  const uint32_t rest = rebased & 0x1fffu;
  const uint32_t up = rest > 0x1000u || (rest == 0x1000u && (kept & 1));
  return static_cast<uint16_t>(sign | (kept + up));
}

FATHOM_HD constexpr float bf16_to_f32(uint16_t h) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(h) << 16);
}

FATHOM_HD constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 64);
  return static_cast<uint16_t>((bits + (0x7fffu + ((bits >> 16) & 1))) >> 16);
}

// 2^(e - 128): the scale of an MXFP4 block, halved, as ggml stores its doubled code values.
FATHOM_HD constexpr float e8m0_to_f32_half(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  return __builtin_bit_cast(float, bits);
}

}  // namespace fathom

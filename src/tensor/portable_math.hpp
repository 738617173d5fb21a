// SPDX-License-Identifier: Apache-2.0
// Elementary functions with the same bits on every host, instruction set and device: fused
// multiply-adds in a fixed order, no library call whose rounding may differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

// exp(x) = 2^n p(r), n = round(x log2 e), r = x - n ln 2 in two parts, p of degree 6: 1.5 ulp.
// Below kExpMin the result is 0, above kExpMax infinity; NaN stays NaN.
struct ExpConstants {
  static constexpr float kMin = -87.0f;
  static constexpr float kMax = 88.0f;
  static constexpr float kLog2e = 1.44269504088896341f;
  static constexpr float kLn2Hi = 0.693359375f;
  static constexpr float kLn2Lo = -2.12194440e-4f;
  static constexpr float kC6 = 1.38888888e-3f, kC5 = 8.33333333e-3f, kC4 = 4.16666667e-2f,
                         kC3 = 1.66666667e-1f, kC2 = 0.5f;
};

FATHOM_HD inline float portable_exp(float x) {
  using C = ExpConstants;
  if (x != x) return x;
  if (x < C::kMin) return 0.0f;
  if (x > C::kMax) return INFINITY;
  const float n = rintf(x * C::kLog2e);
  float r = fmaf(n, -C::kLn2Hi, x);
  r = fmaf(n, -C::kLn2Lo, r);
  float p = C::kC6;
  p = fmaf(p, r, C::kC5);
  p = fmaf(p, r, C::kC4);
  p = fmaf(p, r, C::kC3);
  p = fmaf(p, r, C::kC2);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const int32_t exponent = static_cast<int32_t>(n) * (1 << 23);
  // The builtin, since std::bit_cast is a host function to nvcc.
  return __builtin_bit_cast(float, __builtin_bit_cast(int32_t, p) + exponent);
}

// x / (1 + exp(-x))
FATHOM_HD inline float portable_silu(float x) { return x / (1.0f + portable_exp(-x)); }

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Functions over the vectors of simd_*.hpp whose bits equal their scalar twins in
// tensor/portable_math.hpp, and reductions over 16 logical lanes whatever the vector width.
#pragma once

#include <limits>

#include "tensor/portable_math.hpp"

namespace fathom {

template <class V>
typename V::F vector_exp(typename V::F x) {
  using C = ExpConstants;
  using F = typename V::F;
  const F low = V::set1(C::kMin), high = V::set1(C::kMax);
  const F clamped = V::min(high, V::max(low, x));  // NaN stays: the second operand wins
  const F n = V::round(V::mul(clamped, V::set1(C::kLog2e)));
  F r = V::fma(n, V::set1(-C::kLn2Hi), clamped);
  r = V::fma(n, V::set1(-C::kLn2Lo), r);
  F p = V::set1(C::kC6);
  p = V::fma(p, r, V::set1(C::kC5));
  p = V::fma(p, r, V::set1(C::kC4));
  p = V::fma(p, r, V::set1(C::kC3));
  p = V::fma(p, r, V::set1(C::kC2));
  p = V::fma(p, r, V::set1(1.0f));
  p = V::fma(p, r, V::set1(1.0f));
  F y = V::as_f32(V::add_i32(V::as_i32(p), V::template shift_left<23>(V::to_i32(n))));
  y = V::select_less(x, low, V::set1(0.0f), y);
  return V::select_less(high, x, V::set1(std::numeric_limits<float>::infinity()), y);
}

template <class V>
typename V::F vector_silu(typename V::F x) {
  const auto minus = V::sub(V::set1(0.0f), x);
  return V::div(x, V::add(V::set1(1.0f), vector_exp<V>(minus)));
}

// Sixteen logical lanes as 16/kLanes vectors.
template <class V>
struct Lanes16 {
  static constexpr int kVectors = 16 / V::kLanes;
  typename V::F v[kVectors];

  static Lanes16 set1(float x) {
    Lanes16 out;
    for (auto& f : out.v) f = V::set1(x);
    return out;
  }
  void to_array(float* out) const {
    for (int i = 0; i < kVectors; ++i) V::store(out + i * V::kLanes, v[i]);
  }
  // Lanes l and l+8, then l+4, l+2, l+1.
  float sum() const {
    float lane[16];
    to_array(lane);
    for (int width = 8; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
    }
    return lane[0];
  }
  float max() const {
    float lane[16];
    to_array(lane);
    float out = lane[0];
    for (int l = 1; l < 16; ++l) out = lane[l] > out ? lane[l] : out;
    return out;
  }
};

}  // namespace fathom

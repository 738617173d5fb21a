// SPDX-License-Identifier: Apache-2.0
// The halves that the kernels use, over tensor/half.hpp.
#pragma once

#include "cuda_runtime.h"
#include "tensor/half.hpp"

struct __half {
  uint16_t bits;
  __half() = default;
  explicit __half(float x) : bits(fathom::f32_to_f16(x)) {}
  explicit operator float() const { return fathom::f16_to_f32(bits); }
};
struct alignas(4) __half2 {
  __half x, y;
};

inline __half __ushort_as_half(uint16_t bits) { return std::bit_cast<__half>(bits); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline float __low2float(__half2 h) { return static_cast<float>(h.x); }
inline float __high2float(__half2 h) { return static_cast<float>(h.y); }
inline float2 __half22float2(__half2 h) { return {__low2float(h), __high2float(h)}; }
inline __half2 __hsub2(__half2 a, __half2 b) {
  return __floats2half2_rn(__low2float(a) - __low2float(b), __high2float(a) - __high2float(b));
}
inline __half2 __hmax2(__half2 a, __half2 b) {
  return __floats2half2_rn(std::fmax(__low2float(a), __low2float(b)),
                           std::fmax(__high2float(a), __high2float(b)));
}

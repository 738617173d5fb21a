// SPDX-License-Identifier: Apache-2.0
// The bf16 that the kernels use, over tensor/half.hpp.
#pragma once

#include "cuda_runtime.h"
#include "tensor/half.hpp"

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) : bits(fathom::f32_to_bf16(x)) {}
  explicit operator float() const { return fathom::bf16_to_f32(bits); }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline float __low2float(__nv_bfloat162 h) { return static_cast<float>(h.x); }
inline float __high2float(__nv_bfloat162 h) { return static_cast<float>(h.y); }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__low2float(a) - __low2float(b), __high2float(a) - __high2float(b));
}

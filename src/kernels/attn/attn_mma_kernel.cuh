// SPDX-License-Identifier: Apache-2.0
// Numbers as sums of halves, and the merge of two softmax states. Without an addition or product
// that the compiler may contract: every variant of the kernel has the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attn/attn_instructions_kernel.cuh"
#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

// Two values as kPieces pairs of halves whose sums they are: 22 bits in f16, 24 in bf16.
template <bool kF16, int kPieces>
__device__ __forceinline__ void attn_split(float x, float y, uint32_t (&pieces)[kPieces]) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    if constexpr (kF16) {
      const __half2 h = __floats2half2_rn(x, y);
      pieces[piece] = reinterpret_cast<const uint32_t&>(h);
      x = __fsub_rn(x, __low2float(h));
      y = __fsub_rn(y, __high2float(h));
    } else {
      const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
      pieces[piece] = reinterpret_cast<const uint32_t&>(h);
      x = __fsub_rn(x, __low2float(h));
      y = __fsub_rn(y, __high2float(h));
    }
  }
}

// The codes in bytes 0 and 2 as bf16: 128 + the low 7 bits, less 128 or, of a negative code, 256.
__device__ __forceinline__ uint32_t attn_codes(uint32_t bytes) {
  const uint32_t low = (bytes & 0x007f007fu) | 0x43004300u;
  const uint32_t sign = (bytes & 0x00800080u) | 0x43004300u;
  const __nv_bfloat162 x = __hsub2(reinterpret_cast<const __nv_bfloat162&>(low),
                                   reinterpret_cast<const __nv_bfloat162&>(sign));
  return reinterpret_cast<const uint32_t&>(x);
}

// How a state moves to a maximum: the factors of the old state and of what is added.
struct AttnMerge {
  float max, old_factor, new_factor;
  __device__ __forceinline__ AttnMerge(float old_max, float new_max) {
    max = fmaxf(old_max, new_max);
    const float shift = max == -INFINITY ? 0.0f : max;  // both empty: factors of zero
    old_factor = attn_exp2(__fsub_rn(old_max, shift));
    new_factor = attn_exp2(__fsub_rn(new_max, shift));
  }
  __device__ __forceinline__ float operator()(float old_value, float new_value) const {
    return __fmaf_rn(old_value, old_factor, __fmul_rn(new_value, new_factor));
  }
};

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attn_kernel: numbers as sums of halves, codes as halves. Without an addition or
// product that the compiler may contract: every variant of the kernel has the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attn/attn_instructions_kernel.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/common/mma.cuh"

namespace fathom::cuda {

template <bool kBf16>
__device__ __forceinline__ void attn_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  if constexpr (kBf16) {
    mma_bf16(c, a, b0, b1);
  } else {
    mma_f16(c, a, b0, b1);
  }
}

// Two values as kPieces pairs of halves whose sums they are: 22 bits in f16, 24 in bf16.
template <bool kBf16, int kPieces>
__device__ __forceinline__ void attn_split(float x, float y, uint32_t (&pieces)[kPieces]) {
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    if constexpr (kBf16) {
      const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
      pieces[piece] = reinterpret_cast<const uint32_t&>(h);
      x = __fsub_rn(x, __low2float(h));
      y = __fsub_rn(y, __high2float(h));
    } else {
      const __half2 h = __floats2half2_rn(x, y);
      pieces[piece] = reinterpret_cast<const uint32_t&>(h);
      x = __fsub_rn(x, __low2float(h));
      y = __fsub_rn(y, __high2float(h));
    }
  }
}

// The codes in bytes 0 and 2 as f16: 1024 + 128 + the code, less 1152.
__device__ __forceinline__ uint32_t attn_codes(uint32_t bytes) {
  const uint32_t biased = (bytes & 0x00ff00ffu) ^ 0x64806480u;
  constexpr uint32_t kBias = 0x64806480u;
  const __half2 x =
      __hsub2(reinterpret_cast<const __half2&>(biased), reinterpret_cast<const __half2&>(kBias));
  return reinterpret_cast<const uint32_t&>(x);
}

// The larger of each of two halves; NaNs aside.
__device__ __forceinline__ uint32_t attn_max_halves(uint32_t a, uint32_t b) {
  const __half2 x =
      __hmax2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
  return reinterpret_cast<const uint32_t&>(x);
}

// Over the four lanes of a row, alike in each.
__device__ __forceinline__ float attn_row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float attn_row_sum(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

}  // namespace fathom::cuda

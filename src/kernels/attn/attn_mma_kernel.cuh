// SPDX-License-Identifier: Apache-2.0
// The instructions of attn_kernel: asynchronous copies, matrices from shared memory, numbers as
// sums of halves. Without an addition or product that the compiler may contract: every variant of
// the kernel has the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/cxx20.cuh"
#include "kernels/common/mma.cuh"

namespace fathom::cuda {

// 16 bytes, or zeros instead of reading.
__device__ __forceinline__ void attn_copy_async(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void attn_copy_async(unsigned to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void attn_copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void attn_copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void attn_prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
// Four 8x8 matrices of halves, transposed; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void attn_load_matrices(uint32_t (&r)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
// Adds one, back to zero after n; true for the n-th. What all arrived threads wrote before is
// visible to the n-th after.
__device__ __forceinline__ bool attn_is_last(unsigned* counter, int n) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(n - 1)
               : "memory");
  return before == static_cast<unsigned>(n - 1);
}
__device__ __forceinline__ float attn_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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

// SPDX-License-Identifier: Apache-2.0
// The instructions of attn_kernel: asynchronous copies, matrices from shared memory, products of
// halves, numbers as sums of halves, and the merge of two softmax states. Without an addition or
// product that the compiler may contract: every variant of the kernel has the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

__device__ __forceinline__ unsigned attn_shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// 16 bytes, or zeros instead of reading.
__device__ __forceinline__ void attn_copy_async(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(attn_shared_address(to)),
               "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void attn_copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void attn_copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void attn_load_matrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(attn_shared_address(row))
               : "memory");
}
__device__ __forceinline__ void attn_load_matrix(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(attn_shared_address(row))
               : "memory");
}
template <bool kF16>
__device__ __forceinline__ void attn_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  if constexpr (kF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
__device__ __forceinline__ float attn_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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

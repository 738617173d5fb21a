// SPDX-License-Identifier: Apache-2.0
// The instructions of attn_kernel beside products: asynchronous copies, matrices from shared
// memory, counters of blocks. tests/emulator has another one.
#pragma once

#include <cstdint>

#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

// Of a place in shared memory.
__device__ __forceinline__ unsigned attn_shared_address(const void* place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}
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

}  // namespace fathom::cuda

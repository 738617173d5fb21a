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
// Data that blocks of a cluster send to a barrier of the receiver, in its shared memory, which says
// how much it expects; each phase counts one arrival. No fence waits for other copies.
__device__ __forceinline__ unsigned attn_remote(unsigned address, unsigned rank) {
  unsigned out = address;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
#endif
  return out;
}
__device__ __forceinline__ void attn_meeting_init(unsigned barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void attn_expect(unsigned barrier, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
__device__ __forceinline__ void attn_send(unsigned to, unsigned barrier, const float4& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(to),
      "r"(barrier), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
#endif
}
__device__ __forceinline__ void attn_send(unsigned to, unsigned barrier, const float2& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];" ::"r"(
          to),
      "r"(barrier), "f"(x.x), "f"(x.y)
      : "memory");
#endif
}
__device__ __forceinline__ void attn_receive(unsigned barrier, unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
#endif
}
__device__ __forceinline__ float attn_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace fathom::cuda

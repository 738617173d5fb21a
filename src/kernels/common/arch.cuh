// SPDX-License-Identifier: Apache-2.0
// The one place that asks which architecture device code is compiled for. Below sm_90 the halves of
// programmatic dependence are empty: there a kernel starts when the one before it has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/e4m3.hpp"

namespace fathom::cuda {

// Products of warpgroups, register counts by warpgroup: code for sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

// Whether a kernel may start before the one before it has ended.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasPdl = true;
#else
inline constexpr bool kHasPdl = false;
#endif

// Four E4M3 codes, none NaN: those in the even and in the odd bytes, as two f16 each.
__device__ __forceinline__ void e4m3_to_f16(uint32_t codes, uint32_t& even, uint32_t& odd) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; "
      "cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(even), "=r"(odd)
      : "r"(__byte_perm(codes, 0, 0x3120)));
#else
  constexpr uint32_t k256 = 0x5c005c00;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(even) : "r"(e4m3_even_f16(codes)), "r"(k256));
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(odd) : "r"(e4m3_odd_f16(codes)), "r"(k256));
#endif
}

// Returns when all kernels before this one in the stream are complete and visible. The compiler
// moves no load of theirs above it: the asm clobbers memory.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start as soon as every block has said so or ended.
__device__ __forceinline__ void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A value that the compiler takes for a new one: what follows from it is not worked out before.
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Where n_threads of a block meet, whatever code each is at (__syncthreads() is for one place); id
// is not 0. Warps go as a whole.
__device__ __forceinline__ void barrier_sync(int id, int n_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

// In shared memory. Of copies: counts what is still missing of one stage of a warp's ring.
using Barrier = uint64_t;

__device__ __forceinline__ uint32_t shared_address(const void* of) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(of));
}

// By the lane 0 that will copy; the other lanes see it after __syncwarp().
__device__ __forceinline__ void copy_barrier_init(Barrier* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// A barrier in shared memory that n_arrivals warps pass by warp_arrive().
__device__ __forceinline__ void warp_barrier_init(Barrier* barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(n_arrivals)
               : "memory");
}
// What the warp wrote before is seen by whoever waits for the barrier. Its first n_lanes lanes
// arrive (arriving_lanes.cuh), for a barrier of so many of each warp.
__device__ __forceinline__ void warp_arrive(Barrier* barrier, int n_lanes = 1) {
  __syncwarp();
  if (static_cast<int>(threadIdx.x % 32) < n_lanes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(
                     shared_address(barrier))
                 : "memory");
  }
}

// The same for barriers that all lanes of n_warps warps pass. For what lanes hand over through
// shared memory, seldom: compute-sanitizer does not follow __syncwarp() to the arrival of lane 0.
__device__ __forceinline__ void lanes_barrier_init(Barrier* barrier, int n_warps) {
  warp_barrier_init(barrier, 32 * n_warps);
}
__device__ __forceinline__ void lanes_arrive(Barrier* barrier) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
      : "memory");
}

// Weights go through the L2 once a step: they are the first to be thrown out, so that code,
// activations and the cache's tail stay.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#endif

// The warp copies `bytes` (a multiple of 16) from each of `from` to shared memory in the
// background, one behind the other: bulk copies, or 16 bytes a lane and turn below sm_90. All lanes
// have read what stood there before.
template <bool kOnce, int n>
__device__ __forceinline__ void warp_copy(std::byte* to, const std::byte* const (&from)[n],
                                          int bytes, Barrier* barrier) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane == 0) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(n * bytes)
        : "memory");
    for (int i = 0; i < n; ++i) {
      if constexpr (kOnce) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
            "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to + i * bytes)),
            "l"(from[i]), "r"(bytes), "r"(shared_address(barrier)), "l"(evict_first_policy())
            : "memory");
      } else {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
            "[%3];" ::"r"(shared_address(to + i * bytes)),
            "l"(from[i]), "r"(bytes), "r"(shared_address(barrier))
            : "memory");
      }
    }
  }
#else
  for (int i = 0; i < n; ++i) {
    for (int at = lane * 16; at < bytes; at += 32 * 16) {
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + i * bytes + at)),
          "l"(from[i] + at)
          : "memory");
    }
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}

// A part of what one thread copies to shared memory; `bytes` is a multiple of 16.
struct BulkCopy {
  std::byte* to;
  const std::byte* from;
  int bytes;
};
// By one thread, on GPUs with bulk copies (sm_90 on). The barrier's phase ends when all are there.
// kOnce: they are read once a step, as weights are.
template <bool kOnce, int n>
__device__ __forceinline__ void thread_copy(const BulkCopy (&copies)[n], Barrier* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  int bytes = 0;
  for (const BulkCopy& copy : copies) bytes += copy.bytes;
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
  for (const BulkCopy& copy : copies) {
    if constexpr (kOnce) {
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
          "[%1], %2, [%3], %4;" ::"r"(shared_address(copy.to)),
          "l"(copy.from), "r"(copy.bytes), "r"(shared_address(barrier)), "l"(evict_first_policy())
          : "memory");
    } else {
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(shared_address(copy.to)),
          "l"(copy.from), "r"(copy.bytes), "r"(shared_address(barrier))
          : "memory");
    }
  }
#endif
}

// Barriers that were initialised are seen by copies.
__device__ __forceinline__ void barrier_init_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Whether barrier_wait() would return at once.
__device__ __forceinline__ bool barrier_test(Barrier* barrier, uint32_t parity) {
  uint32_t done = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
#endif
  return done != 0;
}

// Until the copies of the stage are there, or all warps have arrived; parity: 0 for the barrier's
// first use, 1 for its second, 0 for the third.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#endif
  }
}

// Clusters of blocks that see each other's shared memory; below sm_90 a block is alone.
__device__ __forceinline__ unsigned cluster_size() {
  unsigned n = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
#endif
  return n;
}
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}
// All threads of a cluster arrive, then wait: what was written before is seen after.
__device__ __forceinline__ void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
// That the thread has begun: the other blocks' shared memory is there once all have.
__device__ __forceinline__ void cluster_arrive_relaxed() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// The place of p, in the shared memory of this block, in that of another of the cluster.
template <class T>
__device__ __forceinline__ T* cluster_map(T* p, unsigned rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  T* out;
  asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(p), "r"(rank));
  return out;
#else
  return p;
#endif
}

// Data that blocks of a cluster send each other, to a barrier of the receiver, which says how much
// it expects; places are addresses in shared memory. No fence waits for other copies. Nobody sends
// before all have begun, the receiver waits for what it expects.
__device__ __forceinline__ void meeting_init(unsigned barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// By one thread, once a meeting.
__device__ __forceinline__ void meeting_expect(unsigned barrier, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}
// That of an own place in another block.
__device__ __forceinline__ unsigned cluster_address(unsigned address, unsigned rank) {
  unsigned out = address;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
#endif
  return out;
}
__device__ __forceinline__ void meeting_send(unsigned to, unsigned barrier, const float4& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(to),
      "r"(barrier), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
      : "memory");
#endif
}
__device__ __forceinline__ void meeting_send(unsigned to, unsigned barrier, const float2& x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];" ::"r"(
          to),
      "r"(barrier), "f"(x.x), "f"(x.y)
      : "memory");
#endif
}
// parity: 0 for the barrier's first meeting, 1 for its second, 0 for the third.
__device__ __forceinline__ void meeting_wait(unsigned barrier, unsigned parity) {
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

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The emulator runs kernels one after the other: there is nothing to wait for. Barriers in shared
// memory and bulk copies are the emulated block's.
#pragma once

#include "emulator/block.hpp"
#include "emulator/warp.hpp"
#include "tensor/e4m3.hpp"
#include "tensor/half.hpp"

namespace fathom::cuda {

inline constexpr bool kHasWgmma = false;
// So that what a kernel does before it waits is emulated too.
inline constexpr bool kHasPdl = true;

inline void e4m3_to_f16(uint32_t codes, uint32_t& even, uint32_t& odd) {
  const auto exact = [](uint32_t pair) {  // 256 times what the codes give
    const auto of = [](uint32_t half) {
      return uint32_t{f32_to_f16(256 * f16_to_f32(static_cast<uint16_t>(half)))};
    };
    return of(pair & 0xffff) | of(pair >> 16) << 16;
  };
  even = exact(e4m3_even_f16(codes));
  odd = exact(e4m3_odd_f16(codes));
}

inline void pdl_wait() {}
inline void pdl_launch_dependents() {}

inline int opaque(int value) { return value; }

using Barrier = uint64_t;

inline void copy_barrier_init(Barrier* barrier) { emulator::phase_init(barrier, 1); }
inline void warp_barrier_init(Barrier* barrier, int n) { emulator::phase_init(barrier, n); }
inline void warp_arrive(Barrier* barrier, int n_lanes = 1) {
  emulator::sync_warp();
  if (static_cast<int>(threadIdx.x % 32) < n_lanes) emulator::phase_arrive(barrier);
}
inline void lanes_barrier_init(Barrier* barrier, int n_warps) {
  emulator::phase_init(barrier, 32 * n_warps);
}
inline void lanes_arrive(Barrier* barrier) { emulator::phase_arrive(barrier); }
template <bool kOnce, int n>
void warp_copy(std::byte* to, const std::byte* const (&from)[n], int bytes, Barrier* barrier) {
  if (threadIdx.x % 32 != 0) return;
  for (int i = 0; i < n; ++i) emulator::phase_copy(barrier, to + i * bytes, from[i], bytes);
  emulator::phase_copied(barrier);
}
struct BulkCopy {
  std::byte* to;
  const std::byte* from;
  int bytes;
};
template <bool kOnce, int n>
void thread_copy(const BulkCopy (&copies)[n], Barrier* barrier) {
  for (const BulkCopy& copy : copies) {
    emulator::phase_copy(barrier, copy.to, copy.from, copy.bytes);
  }
  emulator::phase_copied(barrier);
}
inline void barrier_init_fence() {}
inline bool barrier_test(Barrier* barrier, uint32_t parity) {
  return emulator::phase_test(barrier, parity);
}
inline void barrier_wait(Barrier* barrier, uint32_t parity) {
  emulator::phase_wait(barrier, parity);
}

// A block is alone.
inline unsigned cluster_size() { return 1; }
inline unsigned cluster_rank() { return 0; }
inline void cluster_arrive_relaxed() {}
inline void cluster_arrive() {}
inline void cluster_wait() {}
template <class T>
T* cluster_map(T* p, unsigned) {
  return p;
}
inline void meeting_init(unsigned) {}
inline void meeting_expect(unsigned, int) {}
inline unsigned cluster_address(unsigned address, unsigned) { return address; }
template <class T>
void meeting_send(unsigned, unsigned, const T&) {}
inline void meeting_wait(unsigned, unsigned) {}

}  // namespace fathom::cuda

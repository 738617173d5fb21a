// SPDX-License-Identifier: Apache-2.0
// The emulator runs kernels one after the other: there is nothing to wait for. Barriers in shared
// memory and bulk copies are the emulated block's.
#pragma once

#include "emulator/block.hpp"
#include "emulator/warp.hpp"

namespace fathom::cuda {

inline constexpr bool kHasWgmma = false;
// So that what a kernel does before it waits is emulated too.
inline constexpr bool kHasPdl = true;

inline void pdl_wait() {}
inline void pdl_launch_dependents() {}

using Barrier = uint64_t;

inline void copy_barrier_init(Barrier* barrier) { emulator::phase_init(barrier, 1); }
inline void warp_barrier_init(Barrier* barrier, int n) { emulator::phase_init(barrier, n); }
inline void warp_arrive(Barrier* barrier) {
  emulator::sync_warp();
  if (threadIdx.x % 32 == 0) emulator::phase_arrive(barrier);
}
template <int n>
void warp_copy(std::byte* to, const std::byte* const (&from)[n], int bytes, Barrier* barrier) {
  if (threadIdx.x % 32 != 0) return;
  for (int i = 0; i < n; ++i) emulator::phase_copy(barrier, to + i * bytes, from[i], bytes);
}
inline void barrier_wait(Barrier* barrier, uint32_t parity) {
  emulator::phase_wait(barrier, parity);
}

}  // namespace fathom::cuda

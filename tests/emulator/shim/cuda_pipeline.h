// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies, which land when their thread waits for them.
#pragma once

#include <cstddef>

#include "emulator/block.hpp"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t n_bytes) {
  if (n_bytes != 16) fathom::emulator::fail_kernel("copies of 16 bytes alone go past the L1");
  fathom::emulator::copy_async(to, from, true);
}
inline void __pipeline_commit() { fathom::emulator::commit_copies(); }
inline void __pipeline_wait_prior(int n_pending) { fathom::emulator::wait_for_copies(n_pending); }

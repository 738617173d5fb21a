// SPDX-License-Identifier: Apache-2.0
// Addresses in shared memory are offsets in the emulated block's.
#pragma once

#include <cmath>
#include <cstddef>

#include "emulator/block.hpp"
#include "emulator/fragments.hpp"

namespace fathom::cuda {

inline unsigned attn_shared_address(const void* place) {
  return static_cast<unsigned>(static_cast<const std::byte*>(place) -
                               emulator::dynamic_shared_memory());
}
inline std::byte* attn_shared_place(unsigned address) {
  return emulator::dynamic_shared_memory() + address;
}
inline void attn_copy_async(unsigned to, const void* from, bool inside = true) {
  emulator::copy_async(attn_shared_place(to), from, inside);
}
inline void attn_copies_commit() { emulator::commit_copies(); }
template <int kPending>
void attn_copies_wait() {
  emulator::wait_for_copies(kPending);
}
inline void attn_prefetch_l2(const void*) {}
inline void attn_load_matrices(uint32_t (&r)[4], unsigned row) {
  emulator::load_matrices(r, attn_shared_place(row));
}
inline bool attn_is_last(unsigned* counter, int n) {
  const unsigned before = *counter;
  *counter = before == static_cast<unsigned>(n - 1) ? 0 : before + 1;
  return before == static_cast<unsigned>(n - 1);
}
inline float attn_exp2(float x) { return std::exp2(x); }

}  // namespace fathom::cuda

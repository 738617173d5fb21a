// SPDX-License-Identifier: Apache-2.0
// The instructions of attn_kernel, on the emulated warp.
#pragma once

#include <cfloat>
#include <cmath>

#include "emulator/fragments.hpp"

namespace fathom::cuda {

inline void attn_copy_async(void* to, const void* from, bool inside) {
  emulator::copy_async(to, from, inside);
}
inline void attn_copies_commit() { emulator::commit_copies(); }
template <int kPending>
void attn_copies_wait() {
  emulator::wait_for_copies(kPending);
}
template <int kMatrices>
void attn_load_matrix(uint32_t (&r)[kMatrices], const void* row) {
  emulator::load_matrices(r, row);
}
template <bool kF16>
void attn_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::add_product<kF16 ? emulator::multiply_f16 : emulator::multiply_bf16>(c, a, b0, b1);
}
inline float attn_exp2(float x) {
  const float y = std::exp2(x);
  return y < FLT_MIN ? 0.0f : y;  // .ftz
}

}  // namespace fathom::cuda

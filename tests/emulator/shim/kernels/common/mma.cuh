// SPDX-License-Identifier: Apache-2.0
// Tensor-core products and named barriers, on the emulated warp.
#pragma once

#include "emulator/fragments.hpp"

namespace fathom::cuda {

enum class CodeSign { plus, both };  // of a's bytes

template <CodeSign sign>
void mma_k32(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int (&c)[4]) {
  constexpr auto kMultiply =
      sign == CodeSign::plus ? emulator::multiply_u8_s8 : emulator::multiply_s8;
  emulator::add_product<kMultiply>(d, {{a[0], a[1], a[2], a[3]}, {b0, b1}}, c);
}

inline void mma_k16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, const int (&c)[4]) {
  emulator::add_product<emulator::multiply_s8_k16>(d, {{a0, a1, 0, 0}, {b, 0}}, c);
}

inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::add_product<emulator::multiply_f16>(d, a, b0, b1);
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::add_product<emulator::multiply_bf16>(d, a, b0, b1);
}

inline void barrier_arrive(int id, int n_threads) { emulator::barrier_arrive(id, n_threads); }
inline void barrier_sync(int id, int n_threads) {
  emulator::barrier_sync(id, n_threads, "barrier_sync");
}

}  // namespace fathom::cuda

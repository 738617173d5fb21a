// SPDX-License-Identifier: Apache-2.0
// Products of tensor cores and ldmatrix, by the fragments that PTX lays out over the lanes (PTX
// ISA, "Matrix fragments for mma.m16n8k32", "... m16n8k16"): g = lane / 4, t = lane % 4.
#pragma once

#include <cstdint>

#include "emulator/warp.hpp"

namespace fathom::emulator {

struct Operands {
  uint32_t a[4], b[2];
};
template <class T>
struct Sums {
  T of[4];  // row g: columns 2t, 2t + 1; row g + 8: the same
};

// d = a b for the whole warp, in a file of its own that is compiled with optimization.
void multiply_u8_s8(const Lanes<Operands, Sums<int>>& lanes);    // m16n8k32
void multiply_s8(const Lanes<Operands, Sums<int>>& lanes);       // m16n8k32
void multiply_s8_k16(const Lanes<Operands, Sums<int>>& lanes);   // m16n8k16
void multiply_f16(const Lanes<Operands, Sums<double>>& lanes);   // m16n8k16
void multiply_bf16(const Lanes<Operands, Sums<double>>& lanes);  // m16n8k16

// Of `kMatrices` 8 x 8 matrices of 16-bit elements, transposed: lane i names row i % 8 of matrix
// i / 8, and gets elements [2t][g] and [2t + 1][g] of each.
template <int kMatrices>
void load_matrices(uint32_t (&out)[kMatrices], const void* row) {
  struct Rows {
    const uint16_t* row;
  };
  struct Registers {
    uint32_t of[kMatrices];
  };
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    fail_kernel("ldmatrix is not aligned to 16 bytes");
  const auto load = [](const Lanes<Rows, Registers>& lanes) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      for (int m = 0; m < kMatrices; ++m) {
        const int first = m * 8 + lane % 4 * 2;
        const uint32_t low = lanes.in[first]->row[lane / 4],
                       high = lanes.in[first + 1]->row[lane / 4];
        lanes.out[lane]->of[m] = low | high << 16;
      }
    }
  };
  const auto got = together<Registers>("ldmatrix", Rows{static_cast<const uint16_t*>(row)}, load);
  for (int m = 0; m < kMatrices; ++m) out[m] = got.of[m];
}

// d += a b of 16-bit floats, summed in double and rounded once.
template <auto multiply>
void add_product(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Operands given{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto got = together<Sums<double>>("mma", given, multiply);
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(d[i] + got.of[i]);
}
// d = a b + c of codes.
template <auto multiply>
void add_product(int (&d)[4], const Operands& given, const int (&c)[4]) {
  const auto got = together<Sums<int>>("mma", given, multiply);
  for (int i = 0; i < 4; ++i) d[i] = c[i] + got.of[i];
}

}  // namespace fathom::emulator

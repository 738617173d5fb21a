// SPDX-License-Identifier: Apache-2.0
// The product of one tile (mma_tile.hpp) with the activations of 8*kSets rows of a step, added to
// a warp's sums. Integers are exact; floats fold block after block, the same at every row count:
//   symmetric  acc += (d d_a) * sum(q q_a)
//   affine     then acc += m * (d_a sum(q_a))
//   two_scale  the halves' integer sums weighted by their scales first
// Source: PTX ISA, mma.m16n8k32 / m16n8k16 for .s8 and m16n8k16 for .f16 and .bf16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/cxx20.cuh"
#include "tensor/dtype.hpp"
#include "tensor/mma_tile.hpp"

namespace fathom::quant {

// What a product needs to know of 32 activations of one row beside their codes.
struct alignas(16) ActInfo {
  float d;             // value = d * q
  float d_sum;         // d * sum(q)
  int minus_lower;     // -(sum of q[0..16))
  int minus_upper;     // -(sum of q[16..32))
};

// 16 activations as sums of two 16-bit floats.
inline constexpr int kMmaStepBytes = 64;

// The activations of n_cols rows, in shared or device memory; a column is a row of the step.
struct MmaActs {
  const std::byte* codes;  // [blocks][n_cols][32] int8, in the order of mma_act_byte
  const ActInfo* info;     // [blocks][n_cols]
  const std::byte* f16;    // [steps of 16][n_cols][high, low][16], in the order of mma_act_half
  const std::byte* bf16;   // likewise
  int n_cols;              // of all rows: the stride
};

// The columns that a block of threads takes: 8 to a set, those from `n` on are zeros.
struct MmaCols {
  int first, n;
};

__device__ __forceinline__ void mma_k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
template <DType type>
__device__ __forceinline__ void mma_real(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  if constexpr (type == DType::f16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ float half_bits(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

// A lane's two scales (rows g and g + 8) and mins of one block, in f32.
struct RowScales {
  float d[2], m[2];
  int half[2][2];
};

template <class Format>
__device__ __forceinline__ RowScales row_scales(const std::byte* tile, int g, int block) {
  const MmaScales s = load_mma_scales<Format>(tile, g, block);
  RowScales out;
  for (int row = 0; row < 2; ++row) {
    out.d[row] = half_bits(s.d[row]);
    if constexpr (Format::kKind == MmaKind::affine) out.m[row] = half_bits(s.m[row]);
    if constexpr (Format::kKind == MmaKind::affine_k) {
      out.d[row] = __fmul_rn(out.d[row], static_cast<float>(s.scale[row]));
      out.m[row] = -__fmul_rn(half_bits(s.m[row]), static_cast<float>(s.min[row]));
    }
    if constexpr (Format::kKind == MmaKind::two_scale) {
      out.half[0][row] = s.half[0][row];
      out.half[1][row] = s.half[1][row];
    }
  }
  return out;
}

// One block against one set of 8 rows. acc: [row g, row g + 8] x [columns 2t, 2t + 1] as
// {g 2t, g 2t+1, g+8 2t, g+8 2t+1}.
template <class Format>
__device__ __forceinline__ void fold_block(float (&acc)[4], const uint32_t (&a)[4],
                                           const RowScales& s, const Words2& b,
                                           const ActInfo (&info)[2]) {
  if constexpr (Format::kKind == MmaKind::two_scale) {
    int lower[4], upper[4];
    for (int i = 0; i < 4; ++i) {
      lower[i] = Format::kOffset * info[i % 2].minus_lower;
      upper[i] = Format::kOffset * info[i % 2].minus_upper;
    }
    mma_k16(lower, a[0], a[1], b.x[0]);
    mma_k16(upper, a[2], a[3], b.x[1]);
    for (int i = 0; i < 4; ++i) {
      const int sum = s.half[0][i / 2] * lower[i] + s.half[1][i / 2] * upper[i];
      acc[i] = __fmaf_rn(__fmul_rn(s.d[i / 2], info[i % 2].d), __int2float_rn(sum), acc[i]);
    }
    return;
  }
  int sum[4] = {};
  if constexpr (Format::kOffset != 0) {
    for (int i = 0; i < 4; ++i) {
      sum[i] = Format::kOffset * (info[i % 2].minus_lower + info[i % 2].minus_upper);
    }
  }
  mma_k32(sum, a, b.x[0], b.x[1]);
  for (int i = 0; i < 4; ++i) {
    acc[i] = __fmaf_rn(__fmul_rn(s.d[i / 2], info[i % 2].d), __int2float_rn(sum[i]), acc[i]);
    if constexpr (Format::kKind == MmaKind::affine || Format::kKind == MmaKind::affine_k) {
      acc[i] = __fmaf_rn(s.m[i / 2], info[i % 2].d_sum, acc[i]);
    }
  }
}

// A tile of codes whose first block is `block0` of the row; n_blocks of it lie inside the matrix
// (beyond, codes and scales are zeros and the activations end).
template <class Format, int kSets>
__device__ __forceinline__ void fold_codes(float (&acc)[kSets][4], const std::byte* tile,
                                           const MmaActs& acts, const MmaCols& cols,
                                           int block0, int n_blocks) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll 1  // unrolled, ten formats take nvcc minutes
  for (int pair = 0; pair < kMmaTileBlocks / 2; ++pair) {
    if (2 * pair >= n_blocks) break;
    uint32_t a[2][4];
    MmaCodes<Format::kBits>::load(tile, pair, lane, a);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int in_tile = 2 * pair + odd;
      if (in_tile >= n_blocks) break;
      const RowScales scales = row_scales<Format>(tile, g, in_tile);
      const int64_t at = static_cast<int64_t>(block0 + in_tile) * acts.n_cols + cols.first;
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int code_col = 8 * set + g, info_col = 8 * set + 2 * t;
        Words2 b{};
        ActInfo info[2] = {};
        if (code_col < cols.n) b = load_as<Words2>(acts.codes + (at + code_col) * 32 + t * 8);
        if (info_col < cols.n) info[0] = acts.info[at + info_col];
        if (info_col + 1 < cols.n) info[1] = acts.info[at + info_col + 1];
        fold_block<Format>(acc[set], a[odd], scales, b, info);
      }
    }
  }
}

// A tile of 16-bit floats whose first step of 16 columns is `step0`.
template <DType type, int kSets>
__device__ __forceinline__ void fold_floats(float (&acc)[kSets][4], const std::byte* tile,
                                            const MmaActs& acts, const MmaCols& cols, int step0,
                                            int n_steps) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const std::byte* values = type == DType::f16 ? acts.f16 : acts.bf16;
  for (int step = 0; step < n_steps; ++step) {
    const Words4 w = load_as<Words4>(tile + (step * 32 + lane) * 16);
    const int64_t at = static_cast<int64_t>(step0 + step) * acts.n_cols + cols.first;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int col = 8 * set + g;
      Words2 high{}, low{};
      if (col < cols.n) {
        high = load_as<Words2>(values + (at + col) * kMmaStepBytes + t * 8);
        low = load_as<Words2>(values + (at + col) * kMmaStepBytes + kMmaStepBytes / 2 + t * 8);
      }
      mma_real<type>(acc[set], w.x, high.x[0], high.x[1]);
      mma_real<type>(acc[set], w.x, low.x[0], low.x[1]);
    }
  }
}

// The tile that begins at column `tile_col` of a matrix of n_matrix_cols.
template <DType type, int kSets>
__device__ __forceinline__ void fold_tile(float (&acc)[kSets][4], const std::byte* tile,
                                          const MmaActs& acts, const MmaCols& cols, int tile_col,
                                          int n_matrix_cols) {
  using Format = MmaFormat<type>;
  const int left = n_matrix_cols - tile_col;
  if constexpr (Format::kKind == MmaKind::real) {
    fold_floats<type, kSets>(acc, tile, acts, cols, tile_col / 16,
                             min(left / 16, kMmaFloatCols / 16));
  } else {
    fold_codes<Format, kSets>(acc, tile, acts, cols, tile_col / kMmaBlock,
                              min(left / kMmaBlock, kMmaTileBlocks));
  }
}

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// The product of one tile (mma_tile.hpp) with the activations of kColumns rows of a step, added to
// a warp's sums. Integers are exact; floats fold block after block, the same at every row count:
//   symmetric  acc += (d d_a) * sum(q q_a)
//   affine     then acc += m * (d_a sum(q_a))
//   two_scale  the halves' integer sums weighted by their scales first
// A lane keeps rows g and g + 8 (g = lane / 4). Up to four rows of the step stand in the even
// columns of the product, so that a lane keeps one of them and not two.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/cxx20.cuh"
#include "kernels/common/mma.cuh"
#include "tensor/dtype.hpp"
#include "tensor/mma_tile.hpp"

namespace fathom::quant {

// What a product needs to know of 32 activations of one row beside their codes.
struct alignas(16) ActInfo {
  float d;          // value = d * q
  float d_sum;      // d * sum(q)
  int minus_lower;  // -(sum of q[0..16))
  int minus_upper;  // -(sum of q[16..32))
};

// 16 activations as sums of two 16-bit floats.
inline constexpr int kMmaStepBytes = 64;

// The activations of n_cols rows, in shared or device memory; a column is a row of the step. All
// are zeros from the last column of the matrix to the end of its last tile.
struct MmaActs {
  const std::byte* codes;  // [blocks][n_cols][32] int8, in the order of mma_act_byte
  const ActInfo* info;     // [blocks][n_cols]
  const std::byte* f16;    // [steps of 16][n_cols][high, low][16], in the order of mma_act_half
  const std::byte* bf16;   // likewise
  int n_cols;              // of all rows: the stride
};

// The columns that a block of threads takes. Those from `n` on repeat the last one; what they give
// is dropped.
struct MmaCols {
  int first, n;
};

template <int kColumns>
struct MmaShape {
  static_assert(kColumns == 4 || kColumns % 8 == 0);
  static constexpr int kSets = kColumns == 4 ? 1 : kColumns / 8;  // products side by side
  static constexpr int kPerLane = kColumns == 4 ? 1 : 2;          // columns of a lane and set
  static constexpr int kStep = kColumns == 4 ? 2 : 1;             // from column to column

  // The first column that a lane keeps of a set, and the one whose codes it feeds.
  __device__ static int kept(int set, int lane) { return 8 * set + lane % 4 * kPerLane; }
  __device__ static int fed(int set, int lane) { return 8 * set + lane / 4 / kStep; }
};

// [row g, row g + 8] x [columns]
template <int kColumns>
using MmaSums = float[MmaShape<kColumns>::kSets][2][MmaShape<kColumns>::kPerLane];

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
      out.d[row] = __fmul_rn(out.d[row], static_cast<float>(static_cast<int>(s.scale[row])));
      out.m[row] =
          -__fmul_rn(half_bits(s.m[row]), static_cast<float>(static_cast<int>(s.min[row])));
    }
    if constexpr (Format::kKind == MmaKind::two_scale) {
      out.half[0][row] = s.half[0][row];
      out.half[1][row] = s.half[1][row];
    }
  }
  return out;
}

// Adding an integer below 2^22 to this float's bits adds it to the float.
inline constexpr int kMagicBits = 0x4b400000;
__device__ __forceinline__ float of_magic(int bits) {
  return __fsub_rn(__int_as_float(bits), 12582912.0f);
}

// The integer sums of one block, weighted by the halves' scales.
template <class Format, int kPerLane>
__device__ __forceinline__ void two_scale_sums(int (&sum)[4], const uint32_t (&a)[4],
                                               const RowScales& s, const Words2& b,
                                               const ActInfo (&info)[kPerLane]) {
  int start_lower[4], start_upper[4], lower[4], upper[4];
  for (int i = 0; i < 4; ++i) {
    start_lower[i] = Format::kOffset * info[i % kPerLane].minus_lower;
    start_upper[i] = Format::kOffset * info[i % kPerLane].minus_upper;
  }
  cuda::mma_k16(lower, a[0], a[1], b.x[0], start_lower);
  cuda::mma_k16(upper, a[2], a[3], b.x[1], start_upper);
  for (int i = 0; i < 4; ++i) {
    sum[i] = s.half[0][i / 2] * lower[i] + s.half[1][i / 2] * upper[i];
  }
}

// The integer sums of one block, on top of kMagicBits. kScale: how many times too large its codes
// are.
template <class Format, int kScale, int kPerLane>
__device__ __forceinline__ void one_scale_sums(int (&sum)[4], const uint32_t (&a)[4],
                                               const Words2& b, const ActInfo (&info)[kPerLane]) {
  int start[4];
  for (int i = 0; i < 4; ++i) {
    start[i] = kMagicBits;
    if constexpr (Format::kOffset != 0) {
      start[i] += kScale * Format::kOffset *
                  (info[i % kPerLane].minus_lower + info[i % kPerLane].minus_upper);
    }
  }
  constexpr auto kSign = Format::kBits == 8 ? cuda::CodeSign::both : cuda::CodeSign::plus;
  cuda::mma_k32<kSign>(sum, a, b.x[0], b.x[1], start);
}

// One block against one set; s.d is as many times too small as the codes are too large.
template <class Format, int kScale, int kPerLane>
__device__ __forceinline__ void fold_block(float (&acc)[2][kPerLane], const uint32_t (&a)[4],
                                           const RowScales& s, const Words2& b,
                                           const ActInfo (&info)[kPerLane]) {
  constexpr bool kTwo = Format::kKind == MmaKind::two_scale;
  int sum[4];
  if constexpr (kTwo) {
    two_scale_sums<Format, kPerLane>(sum, a, s, b, info);
  } else {
    one_scale_sums<Format, kScale, kPerLane>(sum, a, b, info);
  }
  for (int row = 0; row < 2; ++row) {
    for (int col = 0; col < kPerLane; ++col) {
      float& to = acc[row][col];
      const int bits = sum[2 * row + col];
      const float value = kTwo ? __int2float_rn(bits) : of_magic(bits);
      to = __fmaf_rn(__fmul_rn(s.d[row], info[col].d), value, to);
      if constexpr (Format::kKind == MmaKind::affine || Format::kKind == MmaKind::affine_k) {
        to = __fmaf_rn(s.m[row], info[col].d_sum, to);
      }
    }
  }
}

// The scales of a pair's blocks. Those of Q4_K and Q5_K cost many operations to take apart: lane t
// of the four that share rows does so for pair t, once a tile, and hands them on.
template <class Format>
struct PairScales {
  RowScales own[2];

  __device__ __forceinline__ PairScales(const std::byte* tile, int lane) {
    if constexpr (Format::kKind == MmaKind::affine_k) {
      const int pair = lane % 4;
      own[0] = row_scales<Format>(tile, lane / 4, 2 * pair);
      own[1] = row_scales<Format>(tile, lane / 4, 2 * pair + 1);
    }
  }
  __device__ __forceinline__ RowScales of(const std::byte* tile, int lane, int pair,
                                          int odd) const {
    if constexpr (Format::kKind != MmaKind::affine_k) {
      return row_scales<Format>(tile, lane / 4, 2 * pair + odd);
    } else {
      RowScales out;
      const int owner = (lane & ~3) | pair;
      for (int row = 0; row < 2; ++row) {
        out.d[row] = __shfl_sync(0xffffffffu, own[odd].d[row], owner);
        out.m[row] = __shfl_sync(0xffffffffu, own[odd].m[row], owner);
      }
      return out;
    }
  }
};

// A whole tile of codes whose first block is `block0` of the row.
template <class Format, int kColumns>
__device__ __forceinline__ void fold_codes(MmaSums<kColumns>& acc, const std::byte* tile,
                                           const MmaActs& acts, const MmaCols& cols, int block0) {
  using Shape = MmaShape<kColumns>;
  const int lane = threadIdx.x % 32, t = lane % 4;
  const PairScales<Format> scales(tile, lane);
  const std::byte* codes[Shape::kSets];
  const ActInfo* info[Shape::kSets][Shape::kPerLane];
  const int64_t at = static_cast<int64_t>(block0) * acts.n_cols + cols.first;
#pragma unroll
  for (int set = 0; set < Shape::kSets; ++set) {
    codes[set] = acts.codes + (at + min(Shape::fed(set, lane), cols.n - 1)) * kMmaBlock + t * 8;
#pragma unroll
    for (int i = 0; i < Shape::kPerLane; ++i) {
      info[set][i] = acts.info + at + min(Shape::kept(set, lane) + i, cols.n - 1);
    }
  }
#pragma unroll 1  // unrolled, ten formats take nvcc minutes
  for (int pair = 0; pair < kMmaTileBlocks / 2; ++pair) {
    uint32_t a[2][4];
    MmaCodes<Format::kBits>::load(tile, pair, lane, a);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      constexpr int kSecond = MmaCodes<Format::kBits>::kSecondScale;
      RowScales s = scales.of(tile, lane, pair, odd);
      if (odd == 1 && kSecond != 1) {
        for (float& d : s.d) d *= 1.0f / kSecond;
      }
#pragma unroll
      for (int set = 0; set < Shape::kSets; ++set) {
        const Words2 b = load_as<Words2>(codes[set]);
        ActInfo of[Shape::kPerLane];
#pragma unroll
        for (int i = 0; i < Shape::kPerLane; ++i) of[i] = *info[set][i];
        if (odd == 0) {
          fold_block<Format, 1, Shape::kPerLane>(acc[set], a[0], s, b, of);
        } else {
          fold_block<Format, kSecond, Shape::kPerLane>(acc[set], a[1], s, b, of);
        }
        codes[set] += acts.n_cols * kMmaBlock;
#pragma unroll
        for (int i = 0; i < Shape::kPerLane; ++i) info[set][i] += acts.n_cols;
      }
    }
  }
}

// A whole tile of 16-bit floats whose first step of 16 columns is `step0`.
template <DType type, int kColumns>
__device__ __forceinline__ void fold_floats(MmaSums<kColumns>& acc, const std::byte* tile,
                                            const MmaActs& acts, const MmaCols& cols, int step0) {
  using Shape = MmaShape<kColumns>;
  const int lane = threadIdx.x % 32, t = lane % 4;
  const int64_t at = static_cast<int64_t>(step0) * acts.n_cols + cols.first;
  const std::byte* values = (type == DType::f16 ? acts.f16 : acts.bf16) + t * 8;
#pragma unroll 1
  for (int step = 0; step < kMmaFloatCols / 16; ++step) {
    const Words4 w = load_as<Words4>(tile + (step * 32 + lane) * 16);
#pragma unroll
    for (int set = 0; set < Shape::kSets; ++set) {
      const std::byte* from =
          values + (at + static_cast<int64_t>(step) * acts.n_cols +
                    min(Shape::fed(set, lane), cols.n - 1)) *
                       kMmaStepBytes;
      const Words2 high = load_as<Words2>(from);
      const Words2 low = load_as<Words2>(from + kMmaStepBytes / 2);
      float d[4] = {};
      for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
        d[2 * (i / Shape::kPerLane) + i % Shape::kPerLane] =
            acc[set][i / Shape::kPerLane][i % Shape::kPerLane];
      }
      if constexpr (type == DType::f16) {
        cuda::mma_f16(d, w.x, high.x[0], high.x[1]);
        cuda::mma_f16(d, w.x, low.x[0], low.x[1]);
      } else {
        cuda::mma_bf16(d, w.x, high.x[0], high.x[1]);
        cuda::mma_bf16(d, w.x, low.x[0], low.x[1]);
      }
      for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
        acc[set][i / Shape::kPerLane][i % Shape::kPerLane] =
            d[2 * (i / Shape::kPerLane) + i % Shape::kPerLane];
      }
    }
  }
}

// The tile that begins at column `tile_col`.
template <DType type, int kColumns>
__device__ __forceinline__ void fold_tile(MmaSums<kColumns>& acc, const std::byte* tile,
                                          const MmaActs& acts, const MmaCols& cols, int tile_col) {
  using Format = MmaFormat<type>;
  if constexpr (Format::kKind == MmaKind::real) {
    fold_floats<type, kColumns>(acc, tile, acts, cols, tile_col / 16);
  } else {
    fold_codes<Format, kColumns>(acc, tile, acts, cols, tile_col / kMmaBlock);
  }
}

}  // namespace fathom::quant

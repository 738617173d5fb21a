// SPDX-License-Identifier: Apache-2.0
// The product of one tile (mma_tile.hpp) with the activations of kColumns rows of a step, added to
// a warp's sums. Integers are exact; floats fold block after block, the same at every row count:
//   symmetric  p += (d d_a) * sum(q q_a)
//   affine     then p += m * (d_a sum(q_a))
//   two_scale  the halves' integer sums weighted by their scales first
// where p is the sum of a pair of blocks; a tile adds (p0 + p1) + (p2 + p3).
// A lane keeps rows g and g + 8 (g = lane / 4). Up to four rows of the step stand in the even
// columns of the product, so that a lane keeps one of them and not two. One row alone stands there
// as eight columns, one a block of the tile, and lane t of the four that share rows turns the sums
// of pair t into floats, not all four those of every pair.
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
  static_assert(kColumns == 1 || kColumns == 4 || kColumns % 8 == 0);
  static constexpr int kSets = kColumns < 8 ? 1 : kColumns / 8;  // products side by side
  static constexpr int kPerLane = kColumns < 8 ? 1 : 2;          // columns of a lane and set
  static constexpr int kStep = kColumns < 8 ? 2 : 1;             // from column to column

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

// A lane's two scales (rows g and g + 8) and mins of one block, in f32. Those of an odd block whose
// codes are too large are as many times too small.
struct RowScales {
  float d[2], m[2];
  int half[2][2];
};

// Those of both blocks of a pair.
template <class Format>
__device__ __forceinline__ void pair_scales(const std::byte* tile, int g, int pair,
                                            RowScales (&out)[2]) {
  if constexpr (Format::kKind == MmaKind::affine_k) {
    const MmaPairScales s = load_mma_pair_scales<Format>(tile, g, pair);
    for (int row = 0; row < 2; ++row) {
      const float d = half_bits(s.d.x[row]), m = half_bits(s.d.x[2 + row]);
      for (int odd = 0; odd < 2; ++odd) {
        const int shift = 8 * (2 * row + odd);
        out[odd].d[row] = __fmul_rn(d, static_cast<float>(s.scales >> shift & 255u));
        out[odd].m[row] = -__fmul_rn(m, static_cast<float>(s.mins >> shift & 255u));
      }
    }
  } else {
    for (int odd = 0; odd < 2; ++odd) {
      const MmaScales s = load_mma_scales<Format>(tile, g, 2 * pair + odd);
      for (int row = 0; row < 2; ++row) {
        out[odd].d[row] = half_bits(s.d[row]);
        if constexpr (Format::kKind == MmaKind::affine) out[odd].m[row] = half_bits(s.m[row]);
        if constexpr (Format::kKind == MmaKind::two_scale) {
          out[odd].half[0][row] = s.half[0][row];
          out[odd].half[1][row] = s.half[1][row];
        }
      }
    }
  }
  constexpr int kSecond = MmaCodes<Format::kBits>::kSecondScale;
  if constexpr (kSecond != 1) {
    for (float& d : out[1].d) d *= 1.0f / kSecond;
  }
}

// Adding an integer below 2^22 to this float's bits adds it to the float.
inline constexpr int kMagicBits = 0x4b400000;
__device__ __forceinline__ float of_magic(int bits) {
  return __fsub_rn(__int_as_float(bits), 12582912.0f);
}

// What a block's integer sums begin with, for one column: the codes' offset, and kMagicBits where
// the sum becomes a float that way. kScale: how many times too large the codes are.
template <class Format, int kScale>
__device__ __forceinline__ int start_of_sum(const ActInfo& info) {
  int start = kMagicBits;
  if constexpr (Format::kOffset != 0) {
    start += kScale * Format::kOffset * (info.minus_lower + info.minus_upper);
  }
  return start;
}

// A block's product; of formats with two scales the halves' sums.
template <class Format>
struct BlockSums {
  static constexpr bool kTwo = Format::kKind == MmaKind::two_scale;
  int of[kTwo ? 2 : 1][4];

  __device__ __forceinline__ void multiply(const uint32_t (&a)[4], const Words2& b,
                                           const int (&start)[kTwo ? 2 : 1][4]) {
    if constexpr (kTwo) {
      cuda::mma_k16(of[0], a[0], a[1], b.x[0], start[0]);
      cuda::mma_k16(of[1], a[2], a[3], b.x[1], start[1]);
    } else {
      constexpr auto kSign = Format::kBits == 8 ? cuda::CodeSign::both : cuda::CodeSign::plus;
      cuda::mma_k32<kSign>(of[0], a, b.x[0], b.x[1], start[0]);
    }
  }

  __device__ __forceinline__ void add(const BlockSums& other) {
    for (int part = 0; part < (kTwo ? 2 : 1); ++part) {
      for (int i = 0; i < 4; ++i) of[part][i] += other.of[part][i];
    }
  }

  // What `start` holds in the places of a column.
  template <int kScale>
  __device__ __forceinline__ static void start_column(int (&start)[kTwo ? 2 : 1][4], int col,
                                                      const ActInfo& info) {
    for (int row = 0; row < 2; ++row) {
      if constexpr (kTwo) {
        start[0][2 * row + col] = Format::kOffset * info.minus_lower;
        start[1][2 * row + col] = Format::kOffset * info.minus_upper;
      } else {
        start[0][2 * row + col] = start_of_sum<Format, kScale>(info);
      }
    }
  }

  // Adds one row and column of the block to `to`.
  __device__ __forceinline__ void fold(float& to, int row, int col, const RowScales& s,
                                       const ActInfo& info) const {
    float value;
    if constexpr (kTwo) {
      value = __int2float_rn(s.half[0][row] * of[0][2 * row + col] +
                             s.half[1][row] * of[1][2 * row + col]);
    } else {
      value = of_magic(of[0][2 * row + col]);
    }
    to = __fmaf_rn(__fmul_rn(s.d[row], info.d), value, to);
    if constexpr (Format::kKind == MmaKind::affine || Format::kKind == MmaKind::affine_k) {
      to = __fmaf_rn(s.m[row], info.d_sum, to);
    }
  }
};

// The scales of a pair's blocks. Those of Q4_K and Q5_K cost many operations to take apart: lane t
// of the four that share rows does so for pair t, once a tile, and hands them on.
template <class Format>
struct PairScales {
  RowScales own[2];

  __device__ __forceinline__ PairScales(const std::byte* tile, int lane) {
    if constexpr (Format::kKind == MmaKind::affine_k) {
      pair_scales<Format>(tile, lane / 4, lane % 4, own);
    }
  }
  __device__ __forceinline__ void of(const std::byte* tile, int lane, int pair,
                                     RowScales (&out)[2]) const {
    if constexpr (Format::kKind != MmaKind::affine_k) {
      pair_scales<Format>(tile, lane / 4, pair, out);
    } else {
      const int owner = (lane & ~3) | pair;
      for (int odd = 0; odd < 2; ++odd) {
        for (int row = 0; row < 2; ++row) {
          out[odd].d[row] = __shfl_sync(0xffffffffu, own[odd].d[row], owner);
          out[odd].m[row] = __shfl_sync(0xffffffffu, own[odd].m[row], owner);
        }
      }
    }
  }
};

// A whole tile of codes whose first block is `block0` of the row.
template <class Format, int kColumns>
__device__ __forceinline__ void fold_codes(MmaSums<kColumns>& acc, const std::byte* tile,
                                           const MmaActs& acts, const MmaCols& cols, int block0) {
  using Shape = MmaShape<kColumns>;
  using Sums = BlockSums<Format>;
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
  MmaSums<kColumns> half = {};  // p0 + p1, then all four
#pragma unroll 1                // unrolled, ten formats take nvcc minutes
  for (int pair = 0; pair < kMmaTileBlocks / 2; pair += 2) {
    MmaSums<kColumns> sums[2] = {};
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      uint32_t a[2][4];
      MmaCodes<Format::kBits>::load(tile, pair + second, lane, a);
      RowScales s[2];
      scales.of(tile, lane, pair + second, s);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        constexpr int kSecond = MmaCodes<Format::kBits>::kSecondScale;
#pragma unroll
        for (int set = 0; set < Shape::kSets; ++set) {
          const Words2 b = load_as<Words2>(codes[set]);
          int start[Sums::kTwo ? 2 : 1][4];
          ActInfo of[Shape::kPerLane];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int col = i % Shape::kPerLane;
            if (i < Shape::kPerLane) of[col] = *info[set][col];
            if (odd == 0) {
              Sums::template start_column<1>(start, i, of[col]);
            } else {
              Sums::template start_column<kSecond>(start, i, of[col]);
            }
          }
          Sums product;
          product.multiply(a[odd], b, start);
#pragma unroll
          for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
            const int row = i / Shape::kPerLane, col = i % Shape::kPerLane;
            product.fold(sums[second][set][row][col], row, col, s[odd], of[col]);
          }
          codes[set] += acts.n_cols * kMmaBlock;
#pragma unroll
          for (int i = 0; i < Shape::kPerLane; ++i) info[set][i] += acts.n_cols;
        }
      }
    }
#pragma unroll
    for (int set = 0; set < Shape::kSets; ++set) {
#pragma unroll
      for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
        const int row = i / Shape::kPerLane, col = i % Shape::kPerLane;
        half[set][row][col] += sums[0][set][row][col] + sums[1][set][row][col];
      }
    }
  }
#pragma unroll
  for (int set = 0; set < Shape::kSets; ++set) {
#pragma unroll
    for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
      acc[set][i / Shape::kPerLane][i % Shape::kPerLane] +=
          half[set][i / Shape::kPerLane][i % Shape::kPerLane];
    }
  }
}

// What a lane needs of a tile's columns of one row, whose codes and infos stand without others
// between, in shared memory.
struct OneActs {
  Words2 codes;     // of block g
  ActInfo info[2];  // of blocks 2t and 2t + 1
};
__device__ __forceinline__ OneActs shared_acts(const std::byte* codes, const std::byte* info,
                                               int block0, int lane) {
  const int g = lane / 4, t = lane % 4;
  const auto* of = reinterpret_cast<const ActInfo*>(info) + block0 + 2 * t;
  return {load_as<Words2>(codes + (block0 + g) * kMmaBlock + t * 8), {of[0], of[1]}};
}

// The sums of one tile for one row of the step: rows g and g + 8, in each of the four lanes that
// share them. Column g of the products holds the activations of block g alone, where the pair of
// blocks is its own; else zeros. So column 2t of the even blocks' sums is block 2t's, and column
// 2t + 1 of the odd blocks' is block 2t + 1's; what stands in the other columns is of no use.
template <class Format>
__device__ __forceinline__ void tile_of_one(float (&out)[2], const std::byte* tile,
                                            const OneActs& acts, int lane) {
  using Sums = BlockSums<Format>;
  constexpr int kSecond = MmaCodes<Format::kBits>::kSecondScale;
  const int g = lane / 4, t = lane % 4;
  Sums even = {}, odd = {};
  Sums::template start_column<1>(even.of, 0, acts.info[0]);
  Sums::template start_column<kSecond>(odd.of, 1, acts.info[1]);
#pragma unroll
  for (int pair = 0; pair < kMmaTileBlocks / 2; ++pair) {
    uint32_t a[2][4];
    MmaCodes<Format::kBits>::load(tile, pair, lane, a);
    const bool mine = g / 2 == pair;
    const Words2 own{{mine ? acts.codes.x[0] : 0u, mine ? acts.codes.x[1] : 0u}};
    even.multiply(a[0], own, even.of);
    odd.multiply(a[1], own, odd.of);
  }
  RowScales s[2];
  pair_scales<Format>(tile, g, t, s);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float sum = 0.0f;
    even.fold(sum, row, 0, s[0], acts.info[0]);
    odd.fold(sum, row, 1, s[1], acts.info[1]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    out[row] = sum;
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
      const std::byte* from = values + (at + static_cast<int64_t>(step) * acts.n_cols +
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

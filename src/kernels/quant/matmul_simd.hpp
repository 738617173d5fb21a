// SPDX-License-Identifier: Apache-2.0
// The product of packed weights with activation rows, one template for every format, instruction
// set and number of rows. REQUIRES: out of a tile's padding rows is never stored.
//   out[a][row] = sum_cols w[row][col] act[a][col]
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/common/cpu_kernels.hpp"
#include "kernels/quant/formats_simd.hpp"

namespace fathom::quant {

// Stores the lanes of one half tile that are rows of the matrix.
template <class V>
void store_rows(typename V::F acc, float* out, int64_t row, int64_t n_rows) {
  if (row + V::kLanes <= n_rows) {
    V::store(out + row, acc);
    return;
  }
  float lanes[V::kLanes];
  V::store(lanes, acc);
  for (int lane = 0; lane < V::kLanes && row + lane < n_rows; ++lane) out[row + lane] = lanes[lane];
}

// How far ahead of a tile its stream is asked for.
inline constexpr int kPrefetchBytes = 4096;

// One row group against kColumns activation rows.
template <class V, class Format, int kColumns>
void quant_group(const std::byte* tiles, int64_t n_tiles, const ActBlock* act, int64_t act_stride,
                 float* out, int64_t out_stride, int64_t row, int64_t n_rows) {
  using Tile = typename Format::Tile;
  constexpr int kSubs = Tile::kElems / kActBlockElems;
  constexpr int kHalves = kTileRows / V::kLanes;
  // With one column both halves of a tile are taken together, so that the weight stream is read
  // once; with more, a half at a time keeps the accumulators in registers.
  constexpr int kTogether = kColumns == 1 ? kHalves : 1;
  for (int half0 = 0; half0 < kHalves; half0 += kTogether) {
    typename V::F acc[kTogether][kColumns];
    for (auto& half : acc) {
      for (auto& a : half) a = V::set1(0.0f);
    }
    const std::byte* tile = tiles;
    for (int64_t t = 0; t < n_tiles; ++t, tile += Tile::kBytes) {
      auto fold = [&]<int kSub>() __attribute__((always_inline)) {
        const ActBlock* a = act + t * kSubs + kSub;
        if constexpr (kColumns == 1) {
          constexpr int kShare = Tile::kBytes / kSubs;
          for (int at = kSub * kShare; at < (kSub + 1) * kShare; at += 64) {
            V::prefetch(tile + kPrefetchBytes + at);
          }
        }
#pragma GCC unroll 2
        for (int h = 0; h < kTogether; ++h) {
          const Fields<V> fields{tile, (half0 + h) * V::kLanes};
          const auto block = Format::template load<kSub>(fields);
#pragma GCC unroll 8
          for (int c = 0; c < kColumns; ++c) {
            acc[h][c] = block.fold(acc[h][c], a[c * act_stride]);
          }
        }
      };
      [&]<int... kSub>(std::integer_sequence<int, kSub...>) {
        (fold.template operator()<kSub>(), ...);
      }
      (std::make_integer_sequence<int, kSubs>{});
    }
    for (int h = 0; h < kTogether; ++h) {
      for (int c = 0; c < kColumns; ++c) {
        store_rows<V>(acc[h][c], out + c * out_stride, row + (half0 + h) * V::kLanes, n_rows);
      }
    }
  }
}

// Float weights: four chains by column mod 4, joined as (0 + 1) + (2 + 3).
template <class V, class Format, int kColumns>
void float_group(const std::byte* tiles, int64_t cols, const float* act, int64_t act_stride,
                 float* out, int64_t out_stride, int64_t row, int64_t n_rows) {
  constexpr int kChains = 4;
  for (int row0 = 0; row0 < kTileRows; row0 += V::kLanes) {
    typename V::F acc[kChains][kColumns];
    for (auto& chain : acc) {
      for (auto& a : chain) a = V::set1(0.0f);
    }
    auto step = [&](int64_t col, int chain) {
      const auto w = Format::load(tiles + col * Format::kBytes, row0);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        acc[chain][c] = V::fma(w, V::set1(act[c * act_stride + col]), acc[chain][c]);
      }
    };
    int64_t col = 0;
    for (; col + kChains <= cols; col += kChains) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) step(col + chain, chain);
    }
    for (int chain = 0; col < cols; ++col, ++chain) step(col, chain);
    for (int c = 0; c < kColumns; ++c) {
      const auto sum = V::add(V::add(acc[0][c], acc[1][c]), V::add(acc[2][c], acc[3][c]));
      store_rows<V>(sum, out + c * out_stride, row + row0, n_rows);
    }
  }
}

template <int kColumns>
using Columns = std::integral_constant<int, kColumns>;

// Calls fn(Columns<k>, first activation row) over the activation rows in the widest steps there
// are.
template <int kMax, class Fn>
void for_columns(int64_t begin, int64_t end, Fn fn) {
  int64_t a = begin;
  for (; a + kMax <= end; a += kMax) fn(Columns<kMax>{}, a);
  if constexpr (kMax > 1) {
    if (a < end) for_columns<kMax / 2>(a, end, fn);
  }
}

template <class V, class Format>
void quant_matmul(const MatmulJob& job) {
  using Tile = typename Format::Tile;
  const int64_t n_tiles = job.cols / Tile::kElems;
  const int64_t act_stride = job.cols / kActBlockElems;
  for_columns<V::kMaxColumns>(job.act_begin, job.act_end, [&](auto columns, int64_t a) {
    const ActBlock* act = job.act->blocks + a * act_stride;
    float* out = job.out + (a - job.act_begin) * job.out_stride - job.row_begin;
    for (int64_t group = job.group_begin; group < job.group_end; ++group) {
      quant_group<V, Format, decltype(columns)::value>(job.tiles + group * n_tiles * Tile::kBytes,
                                                       n_tiles, act, act_stride, out,
                                                       job.out_stride, group * kTileRows, job.rows);
    }
  });
}

template <class V, class Format>
void float_matmul(const MatmulJob& job) {
  constexpr int kMax = V::kLanes == 16 ? 4 : 2;
  for_columns<kMax>(job.act_begin, job.act_end, [&](auto columns, int64_t a) {
    const float* act = job.act->values + a * job.cols;
    float* out = job.out + (a - job.act_begin) * job.out_stride - job.row_begin;
    for (int64_t group = job.group_begin; group < job.group_end; ++group) {
      float_group<V, Format, decltype(columns)::value>(
          job.tiles + group * job.cols * Format::kBytes, job.cols, act, job.cols, out,
          job.out_stride, group * kTileRows, job.rows);
    }
  });
}

// The formats of one instruction set, by type id.
template <class V>
void fill_matmul(MatmulFn* table) {
  auto at = [&](DType type) -> MatmulFn& { return table[static_cast<uint32_t>(type)]; };
  at(DType::f32) = float_matmul<V, FormatF32<V>>;
  at(DType::f16) = float_matmul<V, FormatF16<V>>;
  at(DType::bf16) = float_matmul<V, FormatBF16<V>>;
  at(DType::q4_0) = quant_matmul<V, FormatQ4_0<V>>;
  at(DType::q4_1) = quant_matmul<V, FormatQ4_1<V>>;
  at(DType::q5_0) = quant_matmul<V, FormatQ5_0<V>>;
  at(DType::q5_1) = quant_matmul<V, FormatQ5_1<V>>;
  at(DType::q8_0) = quant_matmul<V, FormatQ8_0<V>>;
  at(DType::q2_k) = quant_matmul<V, FormatQ2_K<V>>;
  at(DType::q3_k) = quant_matmul<V, FormatQ3_K<V>>;
  at(DType::q4_k) = quant_matmul<V, FormatQ4_K<V>>;
  at(DType::q5_k) = quant_matmul<V, FormatQ5_K<V>>;
  at(DType::q6_k) = quant_matmul<V, FormatQ6_K<V>>;
  at(DType::iq4_nl) = quant_matmul<V, FormatIQ4_NL<V>>;
  at(DType::iq4_xs) = quant_matmul<V, FormatIQ4_XS<V>>;
  at(DType::mxfp4) = quant_matmul<V, FormatMXFP4<V>>;
}

}  // namespace fathom::quant

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

// How decode reads weights: so many row groups side by side, each asked for so many bytes ahead.
struct Reading {
  int streams, ahead;
  bool operator==(const Reading&) const = default;
};

// What a format does on CPUs that read ahead by themselves, and on others
// (docs/kernels/2026-11-29-cpu-decode.md has the figures).
template <class V, class Tile>
constexpr Reading reading(bool reads_ahead) {
  constexpr Reading kAsking{V::kStreams, V::kPrefetchBytes};
  if (!reads_ahead || V::kPrefetchBytes == 0) return kAsking;
  if constexpr (V::kLanes == 16 && Tile::kElems > 1) {
    if constexpr (requires { Tile::kM; }) return kAsking;
    if (Tile::kElems == 256 || Tile::kBits == 5) return {2, 0};
  }
  return {1, 0};
}

// Calls fn.operator()<reading>() with what suits the CPU of the job.
template <class V, class Tile, class Fn>
void with_reading(const MatmulJob& job, Fn fn) {
  constexpr Reading kAsking = reading<V, Tile>(false), kOwn = reading<V, Tile>(true);
  if constexpr (kOwn != kAsking) {
    if (job.core_reads_ahead) return fn.template operator()<kOwn>();
  }
  fn.template operator()<kAsking>();
}

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

// The 32-value blocks of kStreams row groups against kColumns activation rows. Group s starts
// s * stream_rows rows after `row`; several groups side by side are several streams of weights,
// which a core reads faster than one.
template <class V, class Format, int kStreams, int kAhead, int kColumns>
void quant_groups(const std::byte* tiles, int64_t n_tiles, const ActBlock* act, int64_t act_stride,
                  float* out, int64_t out_stride, int64_t row, int64_t stream_rows,
                  int64_t n_rows) {
  using Tile = typename Format::Tile;
  constexpr int kSubs = Tile::kElems / kActBlockElems;
  constexpr int kHalves = kTileRows / V::kLanes;
  // With one column both halves of a tile are taken together, so that the weight stream is read
  // once; with more, a half at a time keeps the accumulators in registers.
  constexpr int kTogether = kColumns == 1 ? kHalves : 1;
  const int64_t stream_bytes = stream_rows / kTileRows * n_tiles * Tile::kBytes;
  for (int half0 = 0; half0 < kHalves; half0 += kTogether) {
    typename V::F acc[kStreams][kTogether][kColumns];
    for (auto& stream : acc) {
      for (auto& half : stream) {
        for (auto& a : half) a = V::set1(0.0f);
      }
    }
    const std::byte* first = tiles;
    for (int64_t t = 0; t < n_tiles; ++t, first += Tile::kBytes) {
#pragma GCC unroll 4
      for (int s = 0; s < kStreams; ++s) {
        const std::byte* tile = first + s * stream_bytes;
        auto fold = [&]<int kOdd>(int pair) __attribute__((always_inline)) {
          const int sub = 2 * pair + kOdd;
          const ActBlock* a = act + t * kSubs + sub;
          if constexpr (kAhead > 0) {
            constexpr int kShare = Tile::kBytes / kSubs;
            for (int at = 0; at < kShare; at += 64) {
              V::prefetch(tile + kAhead + sub * kShare + at);
            }
          }
#pragma GCC unroll 2
          for (int h = 0; h < kTogether; ++h) {
            const Fields<V> fields{tile, (half0 + h) * V::kLanes};
            const auto block = Format::template load<kOdd>(fields, pair);
#pragma GCC unroll 8
            for (int c = 0; c < kColumns; ++c) {
              acc[s][h][c] = block.fold(acc[s][h][c], a[c * act_stride]);
            }
          }
        };
        if constexpr (kSubs == 1) {
          fold.template operator()<0>(0);
        } else {
          // Rolled: unrolled, eight blocks are more instructions than the decoded ones a core
          // keeps.
#pragma GCC unroll 1
          for (int pair = 0; pair < kSubs / 2; ++pair) {
            fold.template operator()<0>(pair);
            fold.template operator()<1>(pair);
          }
        }
      }
    }
    for (int s = 0; s < kStreams; ++s) {
      for (int h = 0; h < kTogether; ++h) {
        for (int c = 0; c < kColumns; ++c) {
          store_rows<V>(acc[s][h][c], out + c * out_stride,
                        row + s * stream_rows + (half0 + h) * V::kLanes, n_rows);
        }
      }
    }
  }
}

// Float weights: four chains by column mod 4, joined as (0 + 1) + (2 + 3).
template <class V, class Format, int kAhead, int kColumns>
void float_group(const std::byte* tiles, int64_t cols, const float* act, int64_t act_stride,
                 float* out, int64_t out_stride, int64_t row, int64_t n_rows) {
  constexpr int kChains = 4;
  constexpr int kHalves = kTileRows / V::kLanes;
  constexpr int kTogether = kColumns == 1 ? kHalves : 1;  // as for blocks
  for (int half0 = 0; half0 < kHalves; half0 += kTogether) {
    typename V::F acc[kChains][kTogether][kColumns];
    for (auto& chain : acc) {
      for (auto& half : chain) {
        for (auto& a : half) a = V::set1(0.0f);
      }
    }
    auto step = [&](int64_t col, int chain) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h) {
        const auto w = Format::load(tiles + col * Format::kBytes, (half0 + h) * V::kLanes);
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) {
          acc[chain][h][c] = V::fma(w, V::set1(act[c * act_stride + col]), acc[chain][h][c]);
        }
      }
    };
    int64_t col = 0;
    for (; col + kChains <= cols; col += kChains) {
      if constexpr (kAhead > 0) {
        for (int at = 0; at < kChains * Format::kBytes; at += 64) {
          V::prefetch(tiles + col * Format::kBytes + kAhead + at);
        }
      }
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) step(col + chain, chain);
    }
    for (int chain = 0; col < cols; ++col, ++chain) step(col, chain);
    for (int h = 0; h < kTogether; ++h) {
      for (int c = 0; c < kColumns; ++c) {
        const auto sum =
            V::add(V::add(acc[0][h][c], acc[1][h][c]), V::add(acc[2][h][c], acc[3][h][c]));
        store_rows<V>(sum, out + c * out_stride, row + (half0 + h) * V::kLanes, n_rows);
      }
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
    constexpr int kColumns = decltype(columns)::value;
    const ActBlock* act = job.act->blocks + a * act_stride;
    float* out = job.out + (a - job.act_begin) * job.out_stride - job.row_begin;
    auto run = [&]<int kStreams, int kAhead>(int64_t group, int64_t n) {  // kStreams parts of n
      if (n == 0) return;
      if constexpr (kColumns == 1) {  // the lines that nobody asks for early enough
        for (int s = 0; s < kStreams; ++s) {
          const std::byte* stream = job.tiles + (group + s * n) * n_tiles * Tile::kBytes;
          for (int at = 0; at < V::kPrefetchBytes; at += 64) V::prefetch(stream + at);
        }
      }
      for (int64_t i = group; i < group + n; ++i) {
        quant_groups<V, Format, kStreams, kAhead, kColumns>(
            job.tiles + i * n_tiles * Tile::kBytes, n_tiles, act, act_stride, out, job.out_stride,
            i * kTileRows, n * kTileRows, job.rows);
      }
    };
    const int64_t group = job.group_begin, n_groups = job.group_end - group;
    if constexpr (kColumns > 1) {
      run.template operator()<1, 0>(group, n_groups);
    } else {
      with_reading<V, Tile>(job, [&]<Reading kReading>() {
        constexpr int kStreams = kReading.streams, kAhead = kReading.ahead;
        const int64_t n = n_groups / kStreams;
        run.template operator()<kStreams, kAhead>(group, n);
        if constexpr (kStreams > 1) {
          run.template operator()<1, kAhead>(group + kStreams * n, n_groups - kStreams * n);
        }
      });
    }
  });
}

template <class V, class Format>
void float_matmul(const MatmulJob& job) {
  constexpr int kMax = V::kLanes == 16 ? 4 : 2;
  for_columns<kMax>(job.act_begin, job.act_end, [&](auto columns, int64_t a) {
    const float* act = job.act->values + a * job.cols;
    float* out = job.out + (a - job.act_begin) * job.out_stride - job.row_begin;
    auto run = [&]<int kAhead>() {
      for (int64_t group = job.group_begin; group < job.group_end; ++group) {
        float_group<V, Format, kAhead, decltype(columns)::value>(
            job.tiles + group * job.cols * Format::kBytes, job.cols, act, job.cols, out,
            job.out_stride, group * kTileRows, job.rows);
      }
    };
    if constexpr (decltype(columns)::value > 1) {
      run.template operator()<0>();
    } else {
      with_reading<V, TileF32>(
          job, [&]<Reading kReading>() { run.template operator()<kReading.ahead>(); });
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

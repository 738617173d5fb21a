// SPDX-License-Identifier: Apache-2.0
// One split of attention over the tiled cache, for any instruction set. Scores have tokens in lanes
// and fold over dims in order; outputs have dims in lanes and fold over tokens in order; a segment
// of 64 tokens rescales the running state once. Masked tokens are selected away and never
// multiplied.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "kernels/attn/attn.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/vector_math.hpp"
#include "tensor/half.hpp"

namespace fathom {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Loads kLanes values of a tile as f32: values of K lie [dim][16 tokens], of V [token][head_dim].
// q8_0 and fp8_e4m3 give bare codes, the latter's by 256 too small; the scales follow the codes,
// f16 for 32 dims of a token or f32 for all, and are applied to sums over as many dims (K) or to
// the weight of the token (V).
template <class V, KvFormat kFormat>
struct TileLoad {
  static constexpr bool kScaled = kv_has_scales(kFormat);
  static constexpr bool kByBlock = kFormat == KvFormat::q8_0;
  static constexpr int kBlockDims = 32;
  // That share a scale.
  static constexpr int scale_dims(int head_dim) { return kByBlock ? kBlockDims : head_dim; }

  [[gnu::always_inline]] static typename V::F k(const std::byte* tile, int dim, int token) {
    return at(tile, dim * kKvTileTokens + token);
  }
  [[gnu::always_inline]] static typename V::F v(const std::byte* tile, int head_dim, int token,
                                                int dim) {
    return at(tile, token * head_dim + dim);
  }
  // Of the dims that share dim's, for kLanes tokens.
  static typename V::F scale(const std::byte* tile, int head_dim, int dim, int token) {
    const std::byte* scales = tile + head_dim * kKvTileTokens;
    if constexpr (kByBlock) {
      return V::load_f16(reinterpret_cast<const uint16_t*>(scales) +
                         dim / kBlockDims * kKvTileTokens + token);
    } else {
      return V::mul(V::load(reinterpret_cast<const float*>(scales) + token), V::set1(256.0f));
    }
  }

 private:
  [[gnu::always_inline]] static typename V::F at(const std::byte* tile, int index) {
    if constexpr (kFormat == KvFormat::f32) {
      return V::load(reinterpret_cast<const float*>(tile) + index);
    } else if constexpr (kFormat == KvFormat::f16) {
      return V::load_f16(reinterpret_cast<const uint16_t*>(tile) + index);
    } else if constexpr (kFormat == KvFormat::bf16) {
      return V::load_bf16(reinterpret_cast<const uint16_t*>(tile) + index);
    } else if constexpr (kFormat == KvFormat::fp8_e4m3) {
      return V::load_e4m3(reinterpret_cast<const uint8_t*>(tile) + index);
    } else {
      return V::to_f32(V::load_i8(reinterpret_cast<const int8_t*>(tile) + index));
    }
  }
};

// Asks for the lines of up to four tiles, a few at a time between other work. Several short streams
// at once are more than a hardware prefetcher follows.
template <class V>
class TilePrefetch {
 public:
  TilePrefetch(const std::byte* const* tiles, int n_tiles, int64_t tile_bytes)
      : tiles_(tiles), left_(n_tiles), tile_bytes_(tile_bytes) {
    if (left_ > 0) start_tile();
  }

  [[gnu::always_inline]] void lines(int n) {
    if (left_ == 0) return;
    for (int i = 0; i < n; ++i) V::prefetch(next_ + 64 * i);
    next_ += 64 * n;
    if (next_ >= end_ && --left_ > 0) start_tile();
  }

 private:
  void start_tile() {
    next_ = *tiles_++;
    end_ = next_ + tile_bytes_;
  }

  const std::byte* const* tiles_;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  int left_;
  int64_t tile_bytes_;
};

template <class V>
struct Attention {
  using F = typename V::F;
  // Lines asked for per 8 dims of scores and per 4 tokens of outputs: 128 over an f16 segment.
  static constexpr int kScoreLines = V::kLanes == 16 ? 16 : 4;
  static constexpr int kOutputLines = V::kLanes == 16 ? 8 : 2;
  static constexpr int kSegmentTiles = kAttnSegmentTokens / kKvTileTokens;
  static constexpr int kTileVectors = kKvTileTokens / V::kLanes;

  // The inner loops stay functions of their own: inlined together they ran out of registers.

  // One segment as the tiles' addresses; tokens [begin, end) of the sequence.
  struct Segment {
    const std::byte* k[kSegmentTiles];
    const std::byte* v[kSegmentTiles];
    const std::byte* next_k[kSegmentTiles];  // of the segment after this one
    int64_t begin;
    int n_tiles;
    int n_next;
  };

  // scores[r][0..16 n_tiles) = scale * q[r] . K
  template <KvFormat kFormat, int kRows>
  static void scores(const Segment& segment, const float* const* q, int head_dim, float scale,
                     float (*out)[kAttnSegmentTokens], TilePrefetch<V>& prefetch) {
    // As many tiles at once as keep the accumulators in registers and the adders busy.
    constexpr int kTiles = V::kLanes == 16 ? 4 : kRows <= 2 ? 2 : 1;
    for (int t0 = 0; t0 < segment.n_tiles; t0 += kTiles) {
      const int n = std::min(kTiles, segment.n_tiles - t0);
      if (n == kTiles) {
        score_tiles<kFormat, kRows, kTiles>(segment.k + t0, q, head_dim, scale, out,
                                            t0 * kKvTileTokens, prefetch);
      } else {
        for (int t = t0; t < t0 + n; ++t) {
          score_tiles<kFormat, kRows, 1>(segment.k + t, q, head_dim, scale, out, t * kKvTileTokens,
                                         prefetch);
        }
      }
    }
  }

  template <KvFormat kFormat, int kRows, int kTiles>
  [[gnu::noinline]] static void score_tiles(const std::byte* const* tiles, const float* const* q,
                                            int head_dim, float scale,
                                            float (*out)[kAttnSegmentTokens], int token0,
                                            TilePrefetch<V>& prefetch) {
    constexpr int kVectors = kTiles * kTileVectors;
    F acc[kRows][kVectors];
    for (auto& row : acc) {
      for (auto& a : row) a = V::set1(0.0f);
    }
    if constexpr (TileLoad<V, kFormat>::kScaled) {
      const int n_dims = TileLoad<V, kFormat>::scale_dims(head_dim);
      for (int dim = 0; dim < head_dim; dim += n_dims) {
        F part[kRows][kVectors];
        for (auto& row : part) {
          for (auto& a : row) a = V::set1(0.0f);
        }
        score_dims<kFormat, kRows, kVectors>(tiles, q, dim, dim + n_dims, part, prefetch);
        for (int i = 0; i < kVectors; ++i) {
          const F scales = TileLoad<V, kFormat>::scale(tiles[i / kTileVectors], head_dim, dim,
                                                       i % kTileVectors * V::kLanes);
          for (int r = 0; r < kRows; ++r) acc[r][i] = V::fma(part[r][i], scales, acc[r][i]);
        }
      }
    } else {
      score_dims<kFormat, kRows, kVectors>(tiles, q, 0, head_dim, acc, prefetch);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVectors; ++i) {
        V::store(out[r] + token0 + i * V::kLanes, V::mul(acc[r][i], V::set1(scale)));
      }
    }
  }

  // acc += q . K over dims [begin, end)
  template <KvFormat kFormat, int kRows, int kVectors>
  [[gnu::always_inline]] static void score_dims(const std::byte* const* tiles,
                                                const float* const* q, int begin, int end,
                                                F (*acc)[kVectors], TilePrefetch<V>& prefetch) {
    for (int dim = begin; dim < end; ++dim) {
      if (dim % 8 == 0) prefetch.lines(kScoreLines);
      F k[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        k[i] = TileLoad<V, kFormat>::k(tiles[i / kTileVectors], dim, i % kTileVectors * V::kLanes);
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const F q_dim = V::set1(q[r][dim]);
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) acc[r][i] = V::fma(q_dim, k[i], acc[r][i]);
      }
    }
  }

  // Turns a row's scores into weights and moves its state to the new maximum: returns the factor
  // by which the output so far shrinks.
  [[gnu::noinline]] static float soften(float* score, int n_tokens, float& max, float& sum) {
    constexpr int kVectors = Lanes16<V>::kVectors;
    auto largest = Lanes16<V>::set1(kMinusInfinity);
    const int padded = (n_tokens + 15) / 16 * 16;
    for (int t = 0; t < padded; t += 16) {
      for (int h = 0; h < kVectors; ++h) {
        F s = V::load(score + t + h * V::kLanes);
        s = V::select_first(n_tokens - t - h * V::kLanes, s, V::set1(kMinusInfinity));
        V::store(score + t + h * V::kLanes, s);
        largest.v[h] = V::max(largest.v[h], s);
      }
    }
    const float new_max = std::max(max, largest.max());
    const float shift = new_max == kMinusInfinity ? 0.0f : new_max;
    auto total = Lanes16<V>::set1(0.0f);
    for (int t = 0; t < padded; t += 16) {
      for (int h = 0; h < kVectors; ++h) {
        const F p = vector_exp<V>(V::sub(V::load(score + t + h * V::kLanes), V::set1(shift)));
        V::store(score + t + h * V::kLanes, p);
        total.v[h] = V::add(total.v[h], p);
      }
    }
    const float shrink = portable_exp(max - shift);
    sum = __builtin_fmaf(sum, shrink, total.sum());
    max = new_max;
    return shrink;
  }

  // output[r] = shrink[r] * output[r] + sum over tokens [0, n_tokens[r]) of p[r][t] V[t]
  template <KvFormat kFormat, int kRows>
  static void outputs(const Segment& segment, const float (*p)[kAttnSegmentTokens],
                      const int* n_tokens, const float* shrink, int head_dim, float* const* output,
                      TilePrefetch<V>& prefetch) {
    // Accumulators, loads and a weight in 16 or 32 registers; q8_0 stays within one scale's dims.
    constexpr int kVectors = V::kLanes == 16 && !TileLoad<V, kFormat>::kByBlock ? 4
                             : V::kLanes == 8 && kRows <= 2                     ? 4
                                                                                : 2;
    constexpr int kDims = kVectors * V::kLanes;
    int common = n_tokens[0];
    for (int r = 1; r < kRows; ++r) common = std::min(common, n_tokens[r]);
    int dim = 0;
    for (; dim + kDims <= head_dim; dim += kDims) {
      output_dims<kFormat, kRows, kVectors>(segment, p, n_tokens, common, shrink, head_dim, dim,
                                            output, prefetch);
    }
    for (; dim < head_dim; dim += 16) {
      output_dims<kFormat, kRows, 16 / V::kLanes>(segment, p, n_tokens, common, shrink, head_dim,
                                                  dim, output, prefetch);
    }
  }

  template <KvFormat kFormat, int kRows, int kVectors>
  [[gnu::noinline]] static void output_dims(const Segment& segment,
                                            const float (*p)[kAttnSegmentTokens],
                                            const int* n_tokens, int common, const float* shrink,
                                            int head_dim, int dim, float* const* output,
                                            TilePrefetch<V>& prefetch) {
    F acc[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVectors; ++i) {
        acc[r][i] = V::mul(V::load(output[r] + dim + i * V::kLanes), V::set1(shrink[r]));
      }
    }
    [[maybe_unused]] alignas(64) float scaled[kRows][kAttnSegmentTokens];
    if constexpr (TileLoad<V, kFormat>::kScaled) {
      for (int at = 0; at < segment.n_tiles * kKvTileTokens; at += V::kLanes) {
        const F scale = TileLoad<V, kFormat>::scale(segment.v[at / kKvTileTokens], head_dim, dim,
                                                    at % kKvTileTokens);
        for (int r = 0; r < kRows; ++r) V::store(scaled[r] + at, V::mul(V::load(p[r] + at), scale));
      }
      p = scaled;
    }
    int token = 0;
    for (int tile = 0; token < common; ++tile) {
      const int end = std::min(common, token + kKvTileTokens);
      for (int t = 0; token < end; ++token, ++t) {
        if (t % 4 == 0) prefetch.lines(kOutputLines);
        F v[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
          v[i] = TileLoad<V, kFormat>::v(segment.v[tile], head_dim, t, dim + i * V::kLanes);
        }
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const F weight = V::set1(p[r][token]);
#pragma GCC unroll 4
          for (int i = 0; i < kVectors; ++i) acc[r][i] = V::fma(weight, v[i], acc[r][i]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {  // the few tokens that only some rows may see
      for (int t = common; t < n_tokens[r]; ++t) {
        const std::byte* tile = segment.v[t / kKvTileTokens];
        const F weight = V::set1(p[r][t]);
        for (int i = 0; i < kVectors; ++i) {
          const F v =
              TileLoad<V, kFormat>::v(tile, head_dim, t % kKvTileTokens, dim + i * V::kLanes);
          acc[r][i] = V::fma(weight, v, acc[r][i]);
        }
      }
      for (int i = 0; i < kVectors; ++i) V::store(output[r] + dim + i * V::kLanes, acc[r][i]);
    }
  }

  template <KvFormat kFormat, int kRows>
  static void rows(const AttnSplitJob& job, const Segment& segment, int first) {
    const int head_dim = job.kv->geometry.head_dim;
    alignas(64) float p[kRows][kAttnSegmentTokens];
    int n_tokens[kRows];
    float shrink[kRows];
    float* output[kRows];
    const int64_t tile_bytes = job.kv->geometry.tile_bytes();
    // The first pass over a segment brings in its V while it scores, and the next K after that.
    const bool first_pass = first == 0;
    TilePrefetch<V> values(segment.v, first_pass ? segment.n_tiles : 0, tile_bytes);
    TilePrefetch<V> next_keys(segment.next_k, first_pass ? segment.n_next : 0, tile_bytes);
    scores<kFormat, kRows>(segment, job.q + first, head_dim, job.scale, p, values);
    for (int r = 0; r < kRows; ++r) {
      const int64_t visible = std::min(job.limit[first + r], job.token_end) - segment.begin;
      n_tokens[r] = static_cast<int>(
          std::clamp<int64_t>(visible, 0, segment.n_tiles * int64_t{kKvTileTokens}));
      shrink[r] = soften(p[r], n_tokens[r], job.max[first + r], job.sum[first + r]);
      output[r] = job.output + int64_t{first + r} * head_dim;
    }
    outputs<kFormat, kRows>(segment, p, n_tokens, shrink, head_dim, output, next_keys);
  }

  // All queries of a segment, in passes of nearly equal size: 7 rows go as 4 and 3, not 6 and 1.
  template <KvFormat kFormat>
  static void all_rows(const AttnSplitJob& job, const Segment& segment) {
    using Pass = void (*)(const AttnSplitJob&, const Segment&, int);
    static constexpr auto kPasses = []<int... kRows>(std::integer_sequence<int, kRows...>) {
      return std::array<Pass, sizeof...(kRows)>{rows<kFormat, kRows + 1>...};
    }
    (std::make_integer_sequence<int, V::kAttnRows>{});
    for (int first = 0; first < job.n_queries;) {
      const int left = job.n_queries - first;
      const int n_passes = (left + V::kAttnRows - 1) / V::kAttnRows;
      const int n = (left + n_passes - 1) / n_passes;
      kPasses[static_cast<size_t>(n - 1)](job, segment, first);
      first += n;
    }
  }

  template <KvFormat kFormat>
  static void split_format(const AttnSplitJob& job) {
    const KvLayerView& kv = *job.kv;
    const int head_dim = kv.geometry.head_dim;
    std::fill_n(job.max, job.n_queries, kMinusInfinity);
    std::fill_n(job.sum, job.n_queries, 0.0f);
    std::fill_n(job.output, int64_t{job.n_queries} * head_dim, 0.0f);
    auto tile_offset = [&](int64_t token) { return kv.tile_offset(job.pages, job.kv_head, token); };
    auto n_tiles_from = [&](int64_t begin, int64_t end) {
      const int64_t n = (end - begin + kKvTileTokens - 1) / kKvTileTokens;
      return static_cast<int>(std::clamp<int64_t>(n, 0, kSegmentTiles));
    };
    for (int64_t begin = job.token_begin; begin < job.token_end; begin += kAttnSegmentTokens) {
      Segment segment;
      segment.begin = begin;
      segment.n_tiles = n_tiles_from(begin, job.token_end);
      for (int tile = 0; tile < segment.n_tiles; ++tile) {
        const int64_t offset = tile_offset(begin + tile * int64_t{kKvTileTokens});
        segment.k[tile] = kv.k + offset;
        segment.v[tile] = kv.v + offset;
      }
      const int64_t next = begin + kAttnSegmentTokens;
      segment.n_next = n_tiles_from(next, job.token_last);
      for (int tile = 0; tile < segment.n_next; ++tile) {
        segment.next_k[tile] = kv.k + tile_offset(next + tile * int64_t{kKvTileTokens});
      }
      all_rows<kFormat>(job, segment);
    }
  }

  static void split(const AttnSplitJob& job) {
    static constexpr void (*kByFormat[kKvFormats])(const AttnSplitJob&) = {
        split_format<KvFormat::f32>, split_format<KvFormat::f16>, split_format<KvFormat::bf16>,
        split_format<KvFormat::q8_0>, split_format<KvFormat::fp8_e4m3>};
    kByFormat[static_cast<int>(job.kv->geometry.format)](job);
  }

  static void merge(float* max_a, float* sum_a, float* out_a, float max_b, float sum_b,
                    const float* out_b, int head_dim) {
    const float max = std::max(*max_a, max_b);
    if (max == kMinusInfinity) return;  // both empty
    const float a = portable_exp(*max_a - max);
    const float b = portable_exp(max_b - max);
    *max_a = max;
    *sum_a = __builtin_fmaf(*sum_a, a, sum_b * b);
    for (int dim = 0; dim < head_dim; dim += V::kLanes) {
      const F scaled = V::mul(V::load(out_b + dim), V::set1(b));
      V::store(out_a + dim, V::fma(V::load(out_a + dim), V::set1(a), scaled));
    }
  }

  static constexpr AttnKernels table() { return {split, merge}; }
};

}  // namespace fathom

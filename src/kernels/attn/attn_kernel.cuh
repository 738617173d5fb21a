// SPDX-License-Identifier: Apache-2.0
// Attention over the tiled cache, one launch for decode and prefill. The work is cut on the device:
//   entry   successive rows of one sequence, at most rows_per_entry; a pass over the cache serves
//           its columns = rows x query heads of one KV head, 8 to an MMA tile
//   item    one split of 256 tokens of an entry and KV head (scratch permitting; the last block to
//           finish a split folds them all), or all splits of it, one after the other
//   step    16 tokens a warp
// Scores S^T = K q^T have tokens on the M side of mma.m16n8k16; a warp takes one tile. Weights go
// through shared memory; outputs O^T = V^T P^T have dims on the M side; a warp takes every
// kWarps-th 16 dims and all tokens of the step. Maxima are common to the block.
// q and p are split into 2 (f16) or 3 (bf16) halves, so that products with K and V as stored are as
// good as in f32; codes of q8_0 are exact in bf16, its scales multiply sums (K) and weights (V).
// The step's positions, slots and pages are read before the dependency wait: kernels that come
// directly before this one in a step write queries and cache only.
// The bits of a column depend on its query and tokens only: states fold split by split in order,
// masked tokens and empty splits change nothing, and no contraction is left to the compiler.
#pragma once

#include "kernels/attn/attn_fold_kernel.cuh"
#include "kernels/attn/attn_tiles_kernel.cuh"
#include "kernels/common/arch.cuh"
#include "kernels/common/dynamic_shared.cuh"

namespace fathom::cuda {

template <class L>
class AttnBlock {
  static constexpr int kTiles = L::kColumnTiles, kHeadDim = L::kDims;

 public:
  __device__ AttnBlock(const AttnParams& params, std::byte* shared)
      : at_{params, shared}, work_(at_), tiles_(at_) {}

  __device__ void run() {
    AttnStep now = work_.first_step(static_cast<int>(blockIdx.x));
    AttnStep next = work_.step_after(now), later = next;
    if constexpr (L::kStages == 2) later = work_.step_after(next);
    // What was cached before this step is under way before q and the step's own tokens are there.
    const bool now_cached = work_.is_cached(now),
               next_cached = L::kStages == 2 && work_.is_cached(next);
    if (now_cached) tiles_.template copy<false>(now, 0);
    if (next_cached) tiles_.template copy<false>(next, 1);
    if (now_cached) tiles_.template copy<true>(now, 0);
    pdl_wait();
    pdl_launch_dependents();
    if (!now_cached) tiles_.template copy<false>(now, 0);
    attn_copies_commit();
    if constexpr (L::kStages == 2) {
      if (!next_cached) tiles_.template copy<false>(next, 1);
      attn_copies_commit();
    }
    if (!now_cached) tiles_.template copy<true>(now, 0);
    attn_copies_commit();
    zero_padded_rows();
    for (int stage = 0; now.valid; stage = (stage + 1) % L::kStages) {
      if (now.token == now.begin) start_item(now);
      if (now.token % kAttnKernelSplitTokens == 0) start_split();
      attn_copies_wait<L::kStages>();
      __syncwarp();  // the warp's K tile is here
      float s[kTiles][4];
      const bool live = now.token + at_.warp * kKvTileTokens < now.len;
      if (live) scores(tiles_.template tile<false>(stage), s);
      __syncwarp();
      tiles_.template copy<false>(L::kStages == 2 ? later : next, stage);
      attn_copies_commit();
      mask(now, live, s);
      __syncthreads();  // maxima of the warps are written; the weights and V before were used
      if constexpr (L::kStages == 2) {
        tiles_.template copy<true>(next, stage ^ 1);
        attn_copies_commit();
      }
      float factor[kTiles][2];
      soften(s, factor);
      attn_copies_wait<L::kStages>();
      __syncthreads();  // weights and V are written
      outputs(now, stage, factor);
      if constexpr (L::kStages == 1) {
        __syncthreads();  // V was used
        tiles_.template copy<true>(next, 0);
        attn_copies_commit();
      }
      if (now.token + L::kStepTokens >= now.end ||
          (now.token + L::kStepTokens) % kAttnKernelSplitTokens == 0) {
        end_split(now);
      }
      now = next;
      if constexpr (L::kStages == 2) {
        next = later;
        later = work_.step_after(later);
      } else {
        next = work_.step_after(next);
      }
    }
    attn_copies_wait<0>();
  }

 private:
  __device__ void zero_padded_rows() const {
    const int width = at_.params.n_heads * kHeadDim;
    for (int row = static_cast<int>(blockIdx.x); row < at_.params.n_rows;
         row += static_cast<int>(gridDim.x)) {
      if (at_.params.pos[row] >= 0) continue;
      float* out = at_.params.out + int64_t{row} * width;
      for (int i = static_cast<int>(threadIdx.x); i < width; i += L::kThreads) out[i] = 0.0f;
    }
  }

  // Queries, limits and output places of the item's columns.
  __device__ void start_item(const AttnStep& step) {
    __syncthreads();  // the limits and places of the item before were used
    const AttnEntry e = work_.entry(step.entry);
    n_columns_ = e.n_rows * at_.params.group;
    active_ = (n_columns_ + kAttnKernelColumns - 1) / kAttnKernelColumns;
    for (int column = at_.warp; column < L::kColumns; column += L::kWarps) {
      const bool inside = column < n_columns_;
      const int row = e.row + column / at_.params.group;
      const int head =
          row * at_.params.n_heads + step.kv_head * at_.params.group + column % at_.params.group;
      if (at_.lane == 0) {
        at_.ints(L::kLimits)[column] = inside ? at_.params.pos[row] : -1;
        at_.ints(L::kHeads)[column] = inside ? head : -1;
      }
      if (column / kAttnKernelColumns < active_) load_query(column, inside, head);
    }
    start_run();
    __syncthreads();
  }

  __device__ void load_query(int column, bool inside, int head) {
    constexpr int kPairs = (kHeadDim / 2 + 31) / 32;
    float2 x[kPairs];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int dim = 2 * (at_.lane + 32 * i);
      x[i] = make_float2(0.0f, 0.0f);
      if (inside && dim < kHeadDim) {
        x[i] = *reinterpret_cast<const float2*>(at_.params.q + int64_t{head} * kHeadDim + dim);
      }
      x[i].x = __fmul_rn(x[i].x, at_.params.scale_log2);
      x[i].y = __fmul_rn(x[i].y, at_.params.scale_log2);
      largest = max(largest, max(__float_as_uint(x[i].x) & 0x7fffffffu,
                                 __float_as_uint(x[i].y) & 0x7fffffffu));
    }
    float* unscale = at_.floats(L::kUnscale);
    if constexpr (L::kF16) {  // the largest of the query to 2^14: all of f16's range for the others
      largest = __reduce_max_sync(0xffffffffu, largest);
      const int exponent = min(max(14 - (static_cast<int>(largest >> 23) - 127), -112), 112);
      const float scale = __int_as_float((127 + exponent) << 23);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        x[i].x = __fmul_rn(x[i].x, scale);
        x[i].y = __fmul_rn(x[i].y, scale);
      }
      if (at_.lane == 0) unscale[column] = __int_as_float((127 - exponent) << 23);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int dim = 2 * (at_.lane + 32 * i);
      if (dim >= kHeadDim) break;
      if constexpr (L::kF32) {
        *reinterpret_cast<float2*>(at_.floats(L::kQueries) + column * L::kQueryStride + dim) = x[i];
      } else {
        uint32_t pieces[L::kPieces];
        attn_split<L::kF16>(x[i].x, x[i].y, pieces);
        const int fragment_lane = column % 8 * 4 + dim % 8 / 2;
#pragma unroll
        for (int piece = 0; piece < L::kPieces; ++piece) {
          auto* to = reinterpret_cast<uint32_t*>(at_.shared + L::kQueries) +
                     query_fragment(piece, column / 8, dim / 16) * 64;
          to[fragment_lane * 2 + dim % 16 / 8] = pieces[piece];
        }
      }
    }
  }
  __device__ static int query_fragment(int piece, int tile, int dim_tile) {
    return (piece * kTiles + tile) * L::kDimTiles + dim_tile;
  }
  __device__ uint2 query(int piece, int tile, int dim_tile) const {
    return reinterpret_cast<const uint2*>(
        at_.shared + L::kQueries)[query_fragment(piece, tile, dim_tile) * 32 + at_.lane];
  }

  __device__ void start_run() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      run_max_[t][0] = run_max_[t][1] = -INFINITY;
      run_sum_[t][0] = run_sum_[t][1] = 0.0f;
#pragma unroll
      for (int m = 0; m < L::kOwnDimTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) run_out_[m][t][i] = 0.0f;
      }
    }
  }
  __device__ void start_split() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      max_[t][0] = max_[t][1] = -INFINITY;
      sum_[t][0] = sum_[t][1] = 0.0f;
#pragma unroll
      for (int m = 0; m < L::kOwnDimTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[m][t][i] = 0.0f;
      }
    }
  }

  // s: scores (times log2 e) of two tokens of the tile and two columns of every 8.
  __device__ void scores(const std::byte* keys, float (&s)[kTiles][4]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[t][i] = 0.0f;
    }
    if constexpr (L::kF32) {
      scores_f32(keys, s);
    } else if constexpr (L::kCodes) {
      scores_codes(keys, s);
    } else {
      scores_halves(keys, s);
    }
  }

  // Sums of 16 dims, then their sum: fewer roundings at the size of the score.
  __device__ void scores_f32(const std::byte* keys, float (&s)[kTiles][4]) const {
    const auto* k = reinterpret_cast<const float*>(keys) + at_.lane / 4;
    const float* q = at_.floats(L::kQueries) + at_.lane % 4 * 2 * L::kQueryStride;
    for (int first = 0; first < kHeadDim; first += 16) {
      float sums[kTiles][4] = {};
#pragma unroll 4
      for (int dim = first; dim < first + 16; ++dim) {
        const float k0 = k[dim * kKvTileTokens], k1 = k[dim * kKvTileTokens + 8];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const float q0 = q[t * 8 * L::kQueryStride + dim];
          const float q1 = q[(t * 8 + 1) * L::kQueryStride + dim];
          sums[t][0] = __fmaf_rn(k0, q0, sums[t][0]);
          sums[t][1] = __fmaf_rn(k0, q1, sums[t][1]);
          sums[t][2] = __fmaf_rn(k1, q0, sums[t][2]);
          sums[t][3] = __fmaf_rn(k1, q1, sums[t][3]);
        }
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[t][i] = __fadd_rn(s[t][i], sums[t][i]);
      }
    }
  }

  __device__ void scores_halves(const std::byte* keys, float (&s)[kTiles][4]) const {
    float lesser[kTiles][4] = {};  // of the lesser pieces: a chain of its own
    const int dim = at_.lane / 16 * 8 + at_.lane % 8, half = at_.lane / 8 % 2;
#pragma unroll 4
    for (int d = 0; d < L::kDimTiles; ++d) {
      uint32_t a[4];
      attn_load_matrix(a, keys + tiles_.key_chunk((d * 16 + dim) * 2 + half) * 16);
      products(a, d, s, lesser);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float unscale[2] = {1.0f, 1.0f};
      if constexpr (L::kF16) {
        unscale[0] = at_.floats(L::kUnscale)[column(t, 0)];
        unscale[1] = at_.floats(L::kUnscale)[column(t, 1)];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[t][i] = __fmul_rn(__fadd_rn(s[t][i], lesser[t][i]), unscale[i % 2]);
      }
    }
  }

  // Rows of the MMA are not tokens in order: row r is token 2r, row r + 8 is token 2r + 1.
  __device__ void scores_codes(const std::byte* keys, float (&s)[kTiles][4]) const {
#pragma unroll 2
    for (int block = 0; block < kHeadDim / 32; ++block) {
      uint32_t codes[4];  // dims 8i + 2 (lane % 4) and the next; tokens 2 (lane / 4) and the next
      attn_load_matrix(codes, keys + (block * 32 + at_.lane) * 16);
      float sums[kTiles][4] = {}, lesser[kTiles][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t a[4] = {attn_codes(codes[2 * half]), attn_codes(codes[2 * half] >> 8),
                               attn_codes(codes[2 * half + 1]),
                               attn_codes(codes[2 * half + 1] >> 8)};
        products(a, block * 2 + half, sums, lesser);
      }
      const float2 scale = __half22float2(*reinterpret_cast<const __half2*>(
          keys + L::kScaleOffset + (block * kKvTileTokens + at_.lane / 4 * 2) * 2));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[t][i] =
              __fmaf_rn(__fadd_rn(sums[t][i], lesser[t][i]), i < 2 ? scale.x : scale.y, s[t][i]);
        }
      }
    }
  }

  __device__ void products(const uint32_t (&a)[4], int dim_tile, float (&s)[kTiles][4],
                           float (&lesser)[kTiles][4]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
      const uint2 b = query(0, t, dim_tile);
      attn_mma<L::kF16>(s[t], a, b.x, b.y);
#pragma unroll
      for (int piece = 1; piece < L::kPieces; ++piece) {
        const uint2 less = query(piece, t, dim_tile);
        attn_mma<L::kF16>(lesser[t], a, less.x, less.y);
      }
    }
  }

  // The token of score i in the warp's tile, and its column.
  __device__ int tile_token(int i) const {
    return L::kCodes ? at_.lane / 4 * 2 + i / 2 : at_.lane / 4 + i / 2 * 8;
  }
  __device__ int column(int tile, int i) const { return tile * 8 + at_.lane % 4 * 2 + i % 2; }

  // Selects what no query may see away, and leaves the tile's maximum of each column.
  __device__ void mask(const AttnStep& step, bool live, float (&s)[kTiles][4]) const {
    const int first = step.token + at_.warp * kKvTileTokens;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
      float largest[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int limit = at_.ints(L::kLimits)[column(t, c)];
#pragma unroll
        for (int i = c; i < 4; i += 2) {
          if (!live || first + tile_token(i) > limit) s[t][i] = -INFINITY;
        }
        largest[c] = fmaxf(s[t][c], s[t][c + 2]);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          largest[c] = fmaxf(largest[c], __shfl_xor_sync(0xffffffffu, largest[c], distance));
        }
      }
      if (at_.lane < 4) partial(at_.warp, t) = make_float2(largest[0], largest[1]);
    }
  }
  // Of a warp and the thread's two columns.
  __device__ float2& partial(int warp, int tile) const {
    return *reinterpret_cast<float2*>(at_.floats(L::kPartials) + warp * L::kColumns +
                                      column(tile, 0));
  }

  // Scores become weights in shared memory; the factors move the outputs to the new maximum.
  __device__ void soften(float (&s)[kTiles][4], float (&factor)[kTiles][2]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
      float2 largest = make_float2(max_[t][0], max_[t][1]);
#pragma unroll
      for (int w = 0; w < L::kWarps; ++w) {
        const float2 of_warp = partial(w, t);
        largest.x = fmaxf(largest.x, of_warp.x);
        largest.y = fmaxf(largest.y, of_warp.y);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float next = c ? largest.y : largest.x;
        const float shift = next == -INFINITY ? 0.0f : next;
        factor[t][c] = attn_exp2(__fsub_rn(max_[t][c], shift));
        max_[t][c] = next;
#pragma unroll
        for (int i = c; i < 4; i += 2) {
          s[t][i] = attn_exp2(__fsub_rn(s[t][i], shift));
          // Weights of f16 go up to 2^15, for the lesser ones' sake; output and sum alike.
          if constexpr (L::kF16) s[t][i] = __fmul_rn(s[t][i], 32768.0f);
        }
        sum_[t][c] = __fmaf_rn(sum_[t][c], factor[t][c], __fadd_rn(s[t][c], s[t][c + 2]));
      }
      store_weights(t, s[t]);
    }
  }

  __device__ void store_weights(int t, const float (&s)[4]) const {
    const int first = at_.warp * kKvTileTokens;
    if constexpr (L::kFloatWeights) {
      float* weights = at_.floats(L::kWeights);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[column(t, i) * L::kWeightStride + first + tile_token(i)] = s[i];
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t pieces[L::kPieces];
        attn_split<L::kF16>(s[2 * half], s[2 * half + 1], pieces);
#pragma unroll
        for (int piece = 0; piece < L::kPieces; ++piece) {
          auto* to =
              reinterpret_cast<uint32_t*>(weight_row(piece, t, first + tile_token(2 * half)));
          to[at_.lane % 4] = pieces[piece];
        }
      }
    }
  }
  __device__ std::byte* weight_row(int piece, int tile, int token) const {
    return at_.shared + L::kWeights + ((piece * kTiles + tile) * L::kStepTokens + token) * 16;
  }

  __device__ void outputs(const AttnStep& step, int stage, const float (&factor)[kTiles][2]) {
    const int n_live = min(L::kWarps, (step.len - step.token + kKvTileTokens - 1) / kKvTileTokens);
#pragma unroll
    for (int m = 0; m < L::kOwnDimTiles; ++m) {
      const int dim_tile = at_.warp + m * L::kWarps;
      if (dim_tile >= L::kDimTiles) break;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t >= active_) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[m][t][i] = __fmul_rn(out_[m][t][i], factor[t][i % 2]);
      }
      if constexpr (L::kF32) {
        outputs_f32(dim_tile, stage, n_live, out_[m]);
      } else {
        outputs_halves(dim_tile, stage, n_live, out_[m]);
      }
    }
  }

  __device__ void outputs_f32(int dim_tile, int stage, int n_live, float (&out)[kTiles][4]) const {
    for (int token = 0; token < n_live * kKvTileTokens; ++token) {
      const auto* v =
          reinterpret_cast<const float*>(tiles_.template tile<true>(stage, token / kKvTileTokens)) +
          token % kKvTileTokens * kHeadDim + dim_tile * 16 + at_.lane / 4;
      const float v0 = v[0], v1 = v[8];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t >= active_) break;
        const float p0 = at_.floats(L::kWeights)[column(t, 0) * L::kWeightStride + token];
        const float p1 = at_.floats(L::kWeights)[column(t, 1) * L::kWeightStride + token];
        out[t][0] = __fmaf_rn(v0, p0, out[t][0]);
        out[t][1] = __fmaf_rn(v0, p1, out[t][1]);
        out[t][2] = __fmaf_rn(v1, p0, out[t][2]);
        out[t][3] = __fmaf_rn(v1, p1, out[t][3]);
      }
    }
  }

  __device__ void outputs_halves(int dim_tile, int stage, int n_live,
                                 float (&out)[kTiles][4]) const {
    float lesser[kTiles][4] = {};
#pragma unroll 2
    for (int i = 0; i < n_live; ++i) {
      const std::byte* values = tiles_.template tile<true>(stage, i);
      uint32_t a[4];
      load_values(values, dim_tile, a);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t >= active_) break;
        uint32_t b[L::kPieces][2];
        load_weights(values, dim_tile, i, t, b);
        attn_mma<L::kF16>(out[t], a, b[0][0], b[0][1]);
#pragma unroll
        for (int piece = 1; piece < L::kPieces; ++piece) {
          attn_mma<L::kF16>(lesser[t], a, b[piece][0], b[piece][1]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[t][i] = __fadd_rn(out[t][i], lesser[t][i]);
    }
  }

  // V^T as the A of an MMA. Of codes, row r is dim 2r of the 16, row r + 8 is dim 2r + 1.
  __device__ void load_values(const std::byte* values, int dim_tile, uint32_t (&a)[4]) const {
    if constexpr (L::kCodes) {
      uint32_t codes[2];
      attn_load_matrix(codes, values + tiles_.value_chunk(at_.lane % 16, dim_tile) * 16);
      a[0] = attn_codes(codes[0]);
      a[1] = attn_codes(codes[0] >> 8);
      a[2] = attn_codes(codes[1]);
      a[3] = attn_codes(codes[1] >> 8);
    } else {
      const int token = at_.lane / 16 * 8 + at_.lane % 8;
      attn_load_matrix(a, values + tiles_.value_chunk(token, dim_tile * 2 + at_.lane / 8 % 2) * 16);
    }
  }
  // P^T as the B of an MMA, of codes times their scales.
  __device__ void load_weights(const std::byte* values, int dim_tile, int i, int t,
                               uint32_t (&b)[L::kPieces][2]) const {
    if constexpr (L::kCodes) {
      const float* weights = at_.floats(L::kWeights) + (t * 8 + at_.lane / 4) * L::kWeightStride +
                             i * kKvTileTokens + at_.lane % 4 * 2;
      const std::byte* scales =
          values + L::kScaleOffset + (dim_tile / 2 * kKvTileTokens + at_.lane % 4 * 2) * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 p = *reinterpret_cast<const float2*>(weights + half * 8);
        const float2 scale = __half22float2(*reinterpret_cast<const __half2*>(scales + half * 16));
        // Selected: the scale of a token that no one may see can be NaN.
        const float x = p.x == 0.0f ? 0.0f : __fmul_rn(p.x, scale.x);
        const float y = p.y == 0.0f ? 0.0f : __fmul_rn(p.y, scale.y);
        uint32_t pieces[L::kPieces];
        attn_split<false>(x, y, pieces);
#pragma unroll
        for (int piece = 0; piece < L::kPieces; ++piece) b[piece][half] = pieces[piece];
      }
    } else {
#pragma unroll
      for (int piece = 0; piece < L::kPieces; ++piece) {
        attn_load_matrix(b[piece], weight_row(piece, t, i * kKvTileTokens + at_.lane % 16));
      }
    }
  }

  // The dim of output i of a dim tile.
  __device__ int dim(int dim_tile, int i) const {
    return dim_tile * 16 + (L::kCodes ? at_.lane / 4 * 2 + i / 2 : at_.lane / 4 + i / 2 * 8);
  }

  __device__ void end_split(const AttnStep& step) {
    add_sums();
    const AttnEntry& e = work_.entry(step.entry);
    if (work_.is_split() && e.len > kAttnKernelSplitTokens) {
      store_state(step.item);
      if (is_last(step))
        AttnFold<L>(at_).fold(work_.entry(step.entry).first_split, step.kv_head, n_columns_);
      return;
    }
    fold_split();
    if (step.token + L::kStepTokens >= step.end) store_outputs();
  }

  // sum_ becomes the sum of all tokens, in every thread of the column.
  __device__ void add_sums() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          sum_[t][c] = __fadd_rn(sum_[t][c], __shfl_xor_sync(0xffffffffu, sum_[t][c], distance));
        }
      }
      if (at_.lane < 4) partial(at_.warp, t) = make_float2(sum_[t][0], sum_[t][1]);
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
      float2 sum = partial(0, t);
#pragma unroll
      for (int w = 1; w < L::kWarps; ++w) {
        const float2 of_warp = partial(w, t);
        sum.x = __fadd_rn(sum.x, of_warp.x);
        sum.y = __fadd_rn(sum.y, of_warp.y);
      }
      sum_[t][0] = sum.x;
      sum_[t][1] = sum.y;
    }
    __syncthreads();  // the next step writes its maxima there
  }

  __device__ void fold_split() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t >= active_) break;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const AttnMerge merge(run_max_[t][c], max_[t][c]);
        run_max_[t][c] = merge.max;
        run_sum_[t][c] = merge(run_sum_[t][c], sum_[t][c]);
#pragma unroll
        for (int m = 0; m < L::kOwnDimTiles; ++m) {
#pragma unroll
          for (int i = c; i < 4; i += 2)
            run_out_[m][t][i] = merge(run_out_[m][t][i], out_[m][t][i]);
        }
      }
    }
  }

  // visit(dim tile of the thread's, tile, i, column, dim) for each output that the thread holds.
  template <class Visit>
  __device__ void each_output(const Visit& visit) const {
#pragma unroll
    for (int m = 0; m < L::kOwnDimTiles; ++m) {
      const int dim_tile = at_.warp + m * L::kWarps;
      if (dim_tile >= L::kDimTiles) break;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (column(t, i) < n_columns_) visit(m, t, i, column(t, i), dim(dim_tile, i));
        }
      }
    }
  }
  __device__ void store_outputs() const {
    each_output([&](int m, int t, int i, int column, int dim) {
      at_.params.out[int64_t{at_.ints(L::kHeads)[column]} * kHeadDim + dim] =
          __fdiv_rn(run_out_[m][t][i], run_sum_[t][i % 2]);
    });
  }

  __device__ void store_state(int item) const {
    float* to = at_.state(item);
    each_output([&](int m, int t, int i, int column, int dim) {
      to[column * kHeadDim + dim] = out_[m][t][i];
    });
    if (at_.warp != 0 || at_.lane >= 4) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (column(t, c) >= n_columns_) continue;
        to[L::kColumns * kHeadDim + column(t, c)] = max_[t][c];
        to[L::kColumns * (kHeadDim + 1) + column(t, c)] = sum_[t][c];
      }
    }
  }

  // Whether all other splits of the item's entry and KV head are stored.
  __device__ bool is_last(const AttnStep& step) const {
    int* flag = at_.ints(L::kScan);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned& counter = at_.params.counters[step.entry * at_.params.n_kv_heads + step.kv_head];
      const bool last =
          atomicAdd(&counter, 1u) + 1 == static_cast<unsigned>(work_.n_splits(step.len));
      if (last) counter = 0;
      *flag = last;
    }
    __syncthreads();
    const bool last = *flag != 0;
    if (last) __threadfence();
    return last;  // the flag is written again behind other barriers
  }

  const AttnThread<L> at_;
  AttnWork<L> work_;
  AttnTiles<L> tiles_;
  int n_columns_, active_;  // of the item; active_: tiles with columns
  // Of two columns of every 8: the split's state, and the states of the splits before folded.
  float max_[kTiles][2], sum_[kTiles][2], out_[L::kOwnDimTiles][kTiles][4];
  float run_max_[kTiles][2], run_sum_[kTiles][2], run_out_[L::kOwnDimTiles][kTiles][4];
};

template <KvFormat kFormat, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(AttnLayout<kFormat, kHeadDim, kTiles>::kThreads,
                                  AttnLayout<kFormat, kHeadDim, kTiles>::kBlocks)
    attn_kernel(const __grid_constant__ AttnParams params) {
  AttnBlock<AttnLayout<kFormat, kHeadDim, kTiles>>(params, dynamic_shared<std::byte>()).run();
}

}  // namespace fathom::cuda

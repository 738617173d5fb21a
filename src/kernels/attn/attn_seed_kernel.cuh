// SPDX-License-Identifier: Apache-2.0
// The two kernels of attn_seed.hpp over the tiled f16 cache.
//   split   tokens [i * chunk, (i + 1) * chunk) of n, chunk = ceil(n / n_splits)
//   quad    four tokens of a tile, aligned: what a lane has of a dim of K in 8 bytes
//   window  quads of a split that its warps divide among themselves, each a run of them
// A warp takes its quads in order, staging several, and folds row after row:
//   s = scale * q . k;  m' = max(m, s);  {sum, out} = {sum, out} * exp(m - m') + exp(s - m') {1, v}
// The lanes have dims lane + 32 i of q and K, and neighbouring dims of V. Staging moves loads, not
// arithmetic: no contraction is left to the compiler, so that its bits are those of any other.
#pragma once

#include <cuda_fp16.h>

#include "kernels/common/cxx20.cuh"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

struct AttnSeedParams {
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  const float* q;  // [n_rows, n_heads, head_dim]
  float* out;      // [n_rows, n_heads, head_dim]
  float* states;  // [n_rows, n_heads, n_splits] of {out [head_dim], max, sum}; no out if max = -inf
  int tiles_per_page;
  unsigned page_factor;  // 2^32 / tiles_per_page, rounded up; not used for 1
  int max_pages, n_heads, group, n_splits;
  int part_quads_log2;  // of a warp in a window
  float scale;
};

// kDims neighbouring dims of a lane.
template <int kDims>
struct AttnSeedState {
  float max = -INFINITY, sum = 0.0f;
  float out[kDims] = {};

  __device__ void fold(float other_max, float other_sum, const float (&other)[kDims]) {
    const float new_max = fmaxf(max, other_max);
    const float own = expf(__fsub_rn(max, new_max)), its = expf(__fsub_rn(other_max, new_max));
    sum = __fmaf_rn(its, other_sum, __fmul_rn(sum, own));
#pragma unroll
    for (int i = 0; i < kDims; ++i) out[i] = __fmaf_rn(its, other[i], __fmul_rn(out[i], own));
    max = new_max;
  }
};

// What a lane finds the tiles of its row and head by.
class AttnSeedCache {
 public:
  __device__ AttnSeedCache(const AttnSeedParams& params, int row, int kv_head)
      : params_(params),
        pages_(params.page_table + int64_t{params.slot[row]} * params.max_pages),
        head_offset_(kv_head * params.kv.geometry.head_bytes()) {}

  // Byte offset of the tile of a token, of K and V alike.
  __device__ int64_t tile(int token) {
    const auto tile = static_cast<unsigned>(token) / kKvTileTokens;
    const unsigned page = params_.tiles_per_page == 1 ? tile : __umulhi(tile, params_.page_factor);
    if (static_cast<int>(page) != page_) {
      page_ = static_cast<int>(page);
      page_offset_ = pages_[page] * params_.kv.geometry.page_bytes() + head_offset_;
    }
    return page_offset_ + static_cast<int>(tile - page * params_.tiles_per_page) *
                              params_.kv.geometry.tile_bytes();
  }

 private:
  const AttnSeedParams& params_;
  const int32_t* pages_;
  int64_t head_offset_, page_offset_ = 0;
  int page_ = -1;
};

// A warp's share of a split.
template <int kHeadDim, int kStaging, bool kStagesValues, int kWarps>
class AttnSeedWarp {
 public:
  static constexpr int kDims = kHeadDim / 32;  // of a lane
  static constexpr int kQuads = kStaging / 4;

  __device__ AttnSeedWarp(const AttnSeedParams& params, int row, int head, int begin, int end)
      : params_(params),
        cache_(params, row, head / params.group),
        begin_(begin),
        end_(end),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    const float* q = params.q + (int64_t{row} * params.n_heads + head) * kHeadDim;
#pragma unroll
    for (int i = 0; i < kDims; ++i) query_[i] = q[lane_ + 32 * i];
  }

  __device__ AttnSeedState<kDims> run() {
#pragma unroll 1
    for (int quad = 0; token(quad) < end_; quad += kQuads) {
      stage(quad);
#pragma unroll
      for (int i = 0; i < kStaging; ++i) {
        const int t = token(quad + i / 4) + i % 4;
        if (t >= begin_ && t < end_) fold_row(t, i);
      }
    }
    return state_;
  }

 private:
  using Values = uint32_t[kDims / 2];

  // The first token of the warp's n-th quad.
  __device__ int token(int n) const {
    const int window = n >> params_.part_quads_log2;
    const int within = n & ((1 << params_.part_quads_log2) - 1);
    return (begin_ & ~3) + (((window * kWarps + warp_) << params_.part_quads_log2) + within) * 4;
  }

  __device__ void stage(int quad) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int t = token(quad + i);
      if (t >= end_) continue;
      const int64_t tile = tiles_[i] = cache_.tile(t);
      const std::byte* keys = params_.kv.k + tile + (lane_ * kKvTileTokens + t % kKvTileTokens) * 2;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) {
        keys_[i][dim] = *reinterpret_cast<const uint2*>(keys + dim * 32 * kKvTileTokens * 2);
      }
      if constexpr (kStagesValues) {
        // All four: the rows before begin_ and after end_ lie in the same tile.
#pragma unroll
        for (int row = 0; row < 4; ++row) load_values(tile, t + row, values_[i * 4 + row]);
      }
    }
  }

  __device__ void load_values(int64_t tile, int token, Values& to) const {
    const std::byte* from =
        params_.kv.v + tile + ((token % kKvTileTokens) * kHeadDim + lane_ * kDims) * 2;
    if constexpr (kDims == 4) {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      to[0] = both.x;
      to[1] = both.y;
    } else {
      to[0] = *reinterpret_cast<const uint32_t*>(from);
    }
  }

  __device__ static float half_of(uint32_t word, int i) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(i % 2 ? word >> 16 : word)));
  }

  // Row `staged` of those staged, which is token t.
  __device__ void fold_row(int t, int staged) {
    float dot = 0.0f;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      const uint2 quad = keys_[staged / 4][dim];
      dot = __fmaf_rn(query_[dim], half_of(staged % 4 < 2 ? quad.x : quad.y, staged), dot);
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
      dot = __fadd_rn(dot, __shfl_xor_sync(0xffffffffu, dot, bits));
    }
    const float score = __fmul_rn(dot, params_.scale), new_max = fmaxf(state_.max, score);
    const float own = expf(__fsub_rn(state_.max, new_max)), its = expf(__fsub_rn(score, new_max));
    Values loaded;
    // Where this load stands in the source it stands in the chain: its address waits for the
    // weight, which is never negative, as the loads of the kernel that this one replays came to
    // wait.
    if constexpr (!kStagesValues) load_values(its < 0.0f ? 0 : tiles_[staged / 4], t, loaded);
    const Values& values = kStagesValues ? values_[staged] : loaded;
    state_.max = new_max;
    state_.sum = __fmaf_rn(state_.sum, own, its);
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      state_.out[dim] =
          __fmaf_rn(its, half_of(values[dim / 2], dim), __fmul_rn(state_.out[dim], own));
    }
  }

  const AttnSeedParams& params_;
  AttnSeedCache cache_;
  const int begin_, end_, lane_, warp_;
  float query_[kDims];
  int64_t tiles_[kQuads] = {};  // offsets of the quads staged
  uint2 keys_[kQuads][kDims] = {};
  Values values_[kStagesValues ? kStaging : 1] = {};
  AttnSeedState<kDims> state_;
};

template <int kHeadDim>
__device__ float* attn_seed_states(const AttnSeedParams& params, int row, int head) {
  return params.states + (int64_t{row} * params.n_heads + head) * params.n_splits * (kHeadDim + 2);
}

// Grid {n_splits, n_heads, n_rows}.
template <int kHeadDim, int kStaging, bool kStagesValues, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    attn_seed_partial_kernel(const __grid_constant__ AttnSeedParams params) {
  constexpr int kDims = kHeadDim / 32;
  const int split = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y),
            row = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int n = params.pos[row] + 1, chunk = (n + params.n_splits - 1) / params.n_splits;
  const int begin = split * chunk, end = min(n, begin + chunk);
  AttnSeedState<kDims> state;
  if (begin < end) {
    state = AttnSeedWarp<kHeadDim, kStaging, kStagesValues, kWarps>(params, row, head, begin, end)
                .run();
  }
  if constexpr (kWarps > 1) {
    __shared__ float of_warps[kWarps][kHeadDim + 2];
#pragma unroll
    for (int i = 0; i < kDims; ++i) of_warps[warp][lane * kDims + i] = state.out[i];
    if (lane == 0) {
      of_warps[warp][kHeadDim] = state.max;
      of_warps[warp][kHeadDim + 1] = state.sum;
    }
    __syncthreads();
    if (warp != 0) return;
    for (int w = 1; w < kWarps; ++w) {
      const float* other = of_warps[w];
      if (other[kHeadDim + 1] == 0.0f) continue;  // it had no rows
      float out[kDims];
#pragma unroll
      for (int i = 0; i < kDims; ++i) out[i] = other[lane * kDims + i];
      state.fold(other[kHeadDim], other[kHeadDim + 1], out);
    }
  }
  float* to = attn_seed_states<kHeadDim>(params, row, head) + split * (kHeadDim + 2);
  if (lane == 0) {
    to[kHeadDim] = state.max;
    to[kHeadDim + 1] = state.sum;
  }
  if (begin >= end) return;
#pragma unroll
  for (int i = 0; i < kDims; ++i) to[lane * kDims + i] = state.out[i];
}

// Grid {n_heads, n_rows}, a thread per dim. The splits fold in order; those without tokens change
// nothing and are not read.
template <int kHeadDim>
__global__ void __launch_bounds__(kHeadDim)
    attn_seed_combine_kernel(const __grid_constant__ AttnSeedParams params) {
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int dim = static_cast<int>(threadIdx.x);
  const float* states = attn_seed_states<kHeadDim>(params, row, head);
  float most = -INFINITY;
  for (int split = 0; split < params.n_splits; ++split) {
    most = fmaxf(most, states[split * (kHeadDim + 2) + kHeadDim]);
  }
  float sum = 0.0f, out = 0.0f;
  for (int split = 0; split < params.n_splits; ++split) {
    const float* state = states + split * (kHeadDim + 2);
    if (state[kHeadDim + 1] == 0.0f) continue;
    const float weight = expf(__fsub_rn(state[kHeadDim], most));
    sum = __fmaf_rn(weight, state[kHeadDim + 1], sum);
    out = __fmaf_rn(weight, state[dim], out);
  }
  const bool is_padding = params.pos[row] < 0;
  params.out[(int64_t{row} * params.n_heads + head) * kHeadDim + dim] =
      is_padding ? 0.0f : __fdiv_rn(out, sum);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// Causal attention of many rows over the tiled cache, on the tensor cores of whole warpgroups
// (sm_90a). A block takes 128 queries of one KV head, 64 a warpgroup, over all their tokens, 128 at
// a time (64 of head dim 256), from token 0 on: scores S = q K^T, weights P = 2^(S - max), outputs
// O += P V, O moved along when a maximum grows (arXiv 2205.14135, 2407.08608). While the tensor
// cores make the scores of a step and the outputs of the step before, a warpgroup waits; the other
// makes its weights then. One more warpgroup fetches (attn_flash_feed_kernel.cuh).
// q and P are rounded to halves as the cache has them (q of bf16 is a sum of two), sums are f32: a
// tolerance class of its own. Within it the bits of a row depend on its query and tokens only:
// steps are at multiples of 128 tokens, and masked tokens and maxima that stay change nothing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>

#include "kernels/attn/attn_flash_feed_kernel.cuh"

namespace fathom::cuda {

template <class L>
class AttnFlashRows {
 public:
  __device__ AttnFlashRows(const AttnFlashParams& params, const AttnFlashWork<L>& work,
                           std::byte* shared, AttnFlashBarriers<L> barriers, int group)
      : params_(params),
        work_(work),
        shared_(shared),
        address_(shared_offset(shared)),
        barriers_(barriers),
        group_(group),
        warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ __forceinline__ void run() {
    if (group_ == 1) give_turn();
    for (int round = 0;; ++round) {
      const AttnFlashItem item = work_.item(round);
      if (!item.valid) return;
      if (item.len == 0) continue;
      const int n_steps = (item.len - 1) / L::kTokens + 1;
      if (item.column + group_ * 64 < item.n_columns) {
        attend(item, n_steps);
      } else {
        pass(n_steps);
      }
    }
  }

 private:
  using Scores = AttnFlashScores<L::kTokens, L::kBf16>;
  using Outputs = AttnFlashOutputs<L::kOutputDims, L::kBf16>;
  static constexpr int kS = L::kTokens / 2, kO = L::kOutputDims / 2;  // registers
  // Weights go up to 2^13: the small ones keep their digits in f16.
  static constexpr float kWeightExponent = 13.0f;

  struct Row {
    int last;  // token that it sees
    float unscale, max, sum;
  };

  // The warpgroups start their products in turn: one makes weights while the other's run.
  __device__ void take_turn() const {
    asm volatile("bar.sync %0, 256;" ::"r"(3 + group_) : "memory");
  }
  __device__ void give_turn() const {
    asm volatile("bar.arrive %0, 256;" ::"r"(4 - group_) : "memory");
  }

  // A tile without columns of this warpgroup.
  __device__ void pass(int n_steps) {
    for (int step = 0; step < n_steps; ++step) {
      if (step > 0) {
        take_turn();
        give_turn();
      }
      mbarrier_wait(barriers_.keys_full(keys_.stage), keys_.parity);
      release_keys();
      mbarrier_wait(barriers_.values_full(values_.stage), values_.parity);
      release_values();
    }
  }

  __device__ __forceinline__ void attend(const AttnFlashItem& item, int n_steps) {
    Row rows[2];
    start_rows(item, rows);
    const int first_last = __shfl_sync(0xffffffffu, rows[0].last, 0);  // of the warp's rows
    float s[kS], o[L::kOutputs][kO], factors[2];
    uint32_t p[L::kCacheTiles][4];
#pragma unroll
    for (int i = 0; i < L::kOutputs; ++i) {
#pragma unroll
      for (int j = 0; j < kO; ++j) o[i][j] = 0.0f;
    }
    mbarrier_wait(barriers_.keys_full(keys_.stage), keys_.parity);
    async_proxy_fence();
    start_scores(s);
    wgmma_wait<0>();
    hold(s);
    release_keys();
    soften(s, rows, factors, 0, first_last);
    pack(p, s);
#pragma unroll 1
    for (int step = 1; step < n_steps; ++step) {
      take_turn();
      mbarrier_wait(barriers_.values_full(values_.stage), values_.parity);
      mbarrier_wait(barriers_.keys_full(keys_.stage), keys_.parity);
      async_proxy_fence();
      start_scores(s);
      start_outputs(o, p);
      give_turn();
      wgmma_wait<1>();
      hold(s);
      release_keys();
      soften(s, rows, factors, step * L::kTokens, first_last);
      make_now(rows[0].sum + rows[1].sum);
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < L::kOutputs; ++i) hold(o[i]);
      release_values();
      rescale(o, factors);
      pack(p, s);
    }
    mbarrier_wait(barriers_.values_full(values_.stage), values_.parity);
    async_proxy_fence();
    start_outputs(o, p);
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < L::kOutputs; ++i) hold(o[i]);
    release_values();
    store(item, o, rows);
  }

  __device__ void release_keys() {
    if (lane_ == 0) mbarrier_arrive(barriers_.keys_empty(keys_.stage));
    keys_.template next<L::kStages>();
  }
  __device__ void release_values() {
    if (lane_ == 0) mbarrier_arrive(barriers_.values_empty(values_.stage));
    values_.template next<L::kStages>();
  }
  __device__ void group_sync() const {
    asm volatile("bar.sync %0, 128;" ::"r"(group_ + 1) : "memory");
  }
  __device__ uint32_t queries() const { return address_ + L::kQueries + group_ * L::kQueryBytes; }

  // Queries to shared memory, 8 lanes a row, scaled so that the largest of a row is in [2^14,
  // 2^15); and what the thread knows of its two rows.
  __device__ __forceinline__ void start_rows(const AttnFlashItem& item, Row (&rows)[2]) {
    auto* unscale = reinterpret_cast<float*>(shared_ + L::kUnscale) + group_ * 64;
    group_sync();  // the tile before was read
    const int first = item.column + group_ * 64;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp_ * 16 + i * 4 + lane_ / 8;
      unscale[row] = make_query(item, first + row, row);
    }
    async_proxy_fence();
    group_sync();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_ * 16 + lane_ / 4 + 8 * r, column = first + row;
      const bool inside = column < item.n_columns;
      rows[r].last = inside ? params_.pos[item.row + column / params_.group] : INT_MAX;
      rows[r].unscale = unscale[row];
      rows[r].max = -INFINITY;
      rows[r].sum = 0.0f;
    }
  }
  // By 8 lanes; what scores have to be multiplied with, a power of two.
  __device__ __forceinline__ float make_query(const AttnFlashItem& item, int column, int row) {
    constexpr int kLoads = (L::kDims + 31) / 32;
    const bool inside = column < item.n_columns;
    const float* from = params_.q + head_of(item, inside ? column : 0) * L::kDims;
    float4 x[kLoads];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int quad = i * 8 + lane_ % 8;
      x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (!inside || quad * 4 >= L::kDims) continue;
      x[i] = *reinterpret_cast<const float4*>(from + quad * 4);
      scale(x[i], params_.scale_log2);
      largest = max(max(max(largest, magnitude(x[i].x)), magnitude(x[i].y)),
                    max(magnitude(x[i].z), magnitude(x[i].w)));
    }
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    const int exponent = min(max(14 - (static_cast<int>(largest >> 23) - 127), -112), 112);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int quad = i * 8 + lane_ % 8;
      if (quad * 4 >= L::kDims) continue;
      scale(x[i], __int_as_float((127 + exponent) << 23));
      const uint32_t to = queries() + quad / 16 * 8192 + row * 128 +
                          ((quad % 16 / 2 ^ row % 8) * 16 + quad % 2 * 8);
#pragma unroll
      for (int piece = 0; piece < L::kPieces; ++piece) {
        const uint32_t low = take_piece(x[i].x, x[i].y), high = take_piece(x[i].z, x[i].w);
        asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to + piece * L::kQueryBlocks * 8192),
                     "r"(low), "r"(high)
                     : "memory");
      }
    }
    return __int_as_float((127 - exponent) << 23);
  }
  __device__ int64_t head_of(const AttnFlashItem& item, int column) const {
    const int64_t row = item.row + column / params_.group;
    return row * params_.n_heads + item.kv_head * params_.group + column % params_.group;
  }
  __device__ static void scale(float4& x, float by) {
    x = make_float4(x.x * by, x.y * by, x.z * by, x.w * by);
  }
  __device__ static uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
  // Halves; of a sum of them the rest stays.
  __device__ static uint32_t take_piece(float& x, float& y) {
    const uint32_t out = pair(x, y);
    if constexpr (L::kPieces > 1) {
      static_assert(L::kBf16);
      const auto& taken = reinterpret_cast<const __nv_bfloat162&>(out);
      x -= __low2float(taken);
      y -= __high2float(taken);
    }
    return out;
  }
  __device__ static uint32_t pair(float x, float y) {
    if constexpr (L::kBf16) {
      const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
      return reinterpret_cast<const uint32_t&>(h);
    } else {
      const __half2 h = __floats2half2_rn(x, y);
      return reinterpret_cast<const uint32_t&>(h);
    }
  }

  // On their way: s = q K^T of the next step. The compiler must not touch s until it has waited.
  __device__ __forceinline__ void start_scores(float (&s)[kS]) {
    hold(s);
    wgmma_fence();
    const uint32_t keys = address_ + L::kKeys + keys_.stage * L::kStageBytes;
#pragma unroll
    for (int piece = 0; piece < L::kPieces; ++piece) {
#pragma unroll
      for (int k = 0; k < L::kDims / 16; ++k) {
        const uint32_t a = queries() + (piece * L::kQueryBlocks + k / 4) * 8192 + k % 4 * 32;
        Scores::run(s, wgmma_operand(a),
                    attn_flash_operand<L::kKeyWidth>(keys + k * 512, L::kTileBytes), piece + k > 0);
      }
    }
    wgmma_commit();
  }
  // On their way: o += p V.
  __device__ __forceinline__ void start_outputs(float (&o)[L::kOutputs][kO],
                                                uint32_t (&p)[L::kCacheTiles][4]) {
#pragma unroll
    for (int k = 0; k < L::kCacheTiles; ++k) hold(p[k]);
#pragma unroll
    for (int i = 0; i < L::kOutputs; ++i) hold(o[i]);
    wgmma_fence();
    constexpr int kRowsBytes = kKvTileTokens * L::kValueWidth;  // to the next columns
    const uint32_t values = address_ + L::kValues + values_.stage * L::kStageBytes;
#pragma unroll
    for (int k = 0; k < L::kCacheTiles; ++k) {
#pragma unroll
      for (int i = 0; i < L::kOutputs; ++i) {
        Outputs::run(o[i], p[k],
                     attn_flash_operand<L::kValueWidth>(
                         values + k * L::kTileBytes + i * L::kTileBytes / L::kOutputs, kRowsBytes),
                     1);
      }
    }
    wgmma_commit();
  }

  // Scores become weights; factors: what sums so far are multiplied with. s[4 j + 2 r + i] is of
  // row r and token 8 j + 2 (lane % 4) + i.
  __device__ __forceinline__ void soften(float (&s)[kS], Row (&rows)[2], float (&factors)[2],
                                         int first_token, int first_last) const {
    if (first_token + L::kTokens - 1 > first_last) {
      const int token = first_token + lane_ % 4 * 2;
#pragma unroll
      for (int i = 0; i < kS; ++i) {
        if (token + i / 4 * 8 + i % 2 > rows[i / 2 % 2].last) s[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(s[2 * r], s[2 * r + 1]);
#pragma unroll
      for (int i = 4; i < kS; i += 4) {
        largest = fmaxf(largest, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      // Not rounded: the weight that counts most is then a power of two, exact in halves.
      const float max = fmaxf(rows[r].max, largest * rows[r].unscale);
      const float shift = max == -INFINITY ? 0.0f : max;
      factors[r] = exp2_of(rows[r].max - shift);
      rows[r].max = max;
      float sum = 0.0f, second = 0.0f;
#pragma unroll
      for (int i = 0; i < kS; i += 4) {
        float &x = s[i + 2 * r], &y = s[i + 2 * r + 1];
        x = exp2_of(fmaf(x, rows[r].unscale, kWeightExponent - shift));
        y = exp2_of(fmaf(y, rows[r].unscale, kWeightExponent - shift));
        sum += x;
        second += y;
      }
      rows[r].sum = fmaf(rows[r].sum, factors[r], sum + second);
    }
  }
  __device__ static float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  // Sums of weights are not negative, but ptxas does not know: what makes them stays before this
  // place, and is not put off until the products of the step are done.
  __device__ static void make_now(float sum) {
    asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p trap;\n}\n" ::"f"(sum)
                 : "memory");
  }
  __device__ __forceinline__ void rescale(float (&o)[L::kOutputs][kO],
                                          const float (&factors)[2]) const {
    if (!__any_sync(0xffffffffu, factors[0] != 1.0f || factors[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < L::kOutputs; ++i) {
#pragma unroll
      for (int j = 0; j < kO; ++j) o[i][j] *= factors[j / 2 % 2];
    }
  }
  // As the rows of a product: tokens 16 k to 16 k + 15 in p[k].
  __device__ __forceinline__ static void pack(uint32_t (&p)[L::kCacheTiles][4],
                                              const float (&s)[kS]) {
#pragma unroll
    for (int k = 0; k < L::kCacheTiles; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[k][i] = pair(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    }
  }

  __device__ __forceinline__ void store(const AttnFlashItem& item,
                                        const float (&o)[L::kOutputs][kO], Row (&rows)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows[r].sum;
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int column = item.column + group_ * 64 + warp_ * 16 + lane_ / 4 + 8 * r;
      if (column >= item.n_columns) continue;
      const float factor = 1.0f / sum;
      float* to = params_.out + head_of(item, column) * L::kDims + lane_ % 4 * 2;
#pragma unroll
      for (int i = 0; i < L::kOutputs; ++i) {
#pragma unroll
        for (int j = 0; j < L::kOutputDims / 8; ++j) {
          const float x = o[i][4 * j + 2 * r], y = o[i][4 * j + 2 * r + 1];
          *reinterpret_cast<float2*>(to + i * L::kOutputDims + 8 * j) =
              make_float2(x * factor, y * factor);
        }
      }
    }
  }

  const AttnFlashParams& params_;
  const AttnFlashWork<L>& work_;
  std::byte* shared_;
  uint32_t address_;
  AttnFlashBarriers<L> barriers_;
  AttnFlashPlace keys_, values_;
  int group_, warp_, lane_;  // warpgroup that multiplies: 0 or 1
};

__device__ inline void attn_flash_zero_padded_rows(const AttnFlashParams& params, int width) {
  for (int row = static_cast<int>(blockIdx.x); row < params.n_rows;
       row += static_cast<int>(gridDim.x)) {
    if (params.pos[row] >= 0) continue;
    float* out = params.out + int64_t{row} * width;
    for (int i = static_cast<int>(threadIdx.x) % 128; i < width; i += 128) out[i] = 0.0f;
  }
}

template <class L>
__device__ __forceinline__ void attn_flash_block(const AttnFlashParams& params, std::byte* shared) {
  const AttnFlashBarriers<L> barriers{shared_offset(shared) + L::kBarriers};
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      mbarrier_init(barriers.keys_full(i), 128);
      mbarrier_init(barriers.values_full(i), 128);
      mbarrier_init(barriers.keys_empty(i), 8);
      mbarrier_init(barriers.values_empty(i), 8);
    }
    mbarrier_init_fence();
  }
  const AttnFlashWork<L> work(params, shared);
  pdl_launch_dependents();
  // By a shuffle, so that the compiler knows it for one value a warp.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == 0) {
    give_registers<L::kFetchRegisters>();
    pdl_wait();
    attn_flash_zero_padded_rows(params, params.n_heads * L::kDims);
    AttnFlashFeed<L>(params, work, shared_offset(shared), barriers).run();
  } else {
    take_registers<L::kRegisters>();
    pdl_wait();
    AttnFlashRows<L>(params, work, shared, barriers, group - 1).run();
  }
}

template <KvFormat kFormat, int kHeadDim>
__global__ void __launch_bounds__(kAttnFlashThreads, 1)
    attn_flash_kernel(const __grid_constant__ AttnFlashParams params) {
  if constexpr (kHasWgmma) {
    extern __shared__ __align__(1024) std::byte attn_flash_shared[];
    attn_flash_block<AttnFlashLayout<kFormat, kHeadDim>>(params, attn_flash_shared);
  }
}

}  // namespace fathom::cuda

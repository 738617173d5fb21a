// SPDX-License-Identifier: Apache-2.0
// The states of splits, left in scratch by several blocks, folded in order by the last of them.
#pragma once

#include "kernels/attn/attn_layout_kernel.cuh"
#include "kernels/attn/attn_mma_kernel.cuh"

namespace fathom::cuda {

template <class L>
class AttnFold {
 public:
  __device__ explicit AttnFold(const AttnThread<L>& at) : at_(at) {}

  // Of an entry whose first split is `first`: all splits that a column sees, a warp a column. The
  // arithmetic is fold_split's of attn_kernel.cuh, whose merges with empty states change nothing.
  __device__ void fold(int first, int kv_head, int n_columns) const {
    for (int column = at_.warp; column < n_columns; column += L::kWarps) {
      const int n = at_.ints(L::kLimits)[column] / kAttnKernelSplitTokens + 1;
      float2 out[kLanePairs] = {};
      float run_max = -INFINITY, run_sum = 0.0f;
      for (int base = 0; base < n; base += 32) {
        fold_32(first + base, kv_head, column, min(32, n - base), out, run_max, run_sum);
      }
      float* to = at_.params.out + int64_t{at_.ints(L::kHeads)[column]} * L::kDims;
#pragma unroll
      for (int i = 0; i < kLanePairs; ++i) {
        const int dim = 2 * (at_.lane + 32 * i);
        if (dim >= L::kDims) break;
        *reinterpret_cast<float2*>(to + dim) =
            make_float2(__fdiv_rn(out[i].x, run_sum), __fdiv_rn(out[i].y, run_sum));
      }
    }
  }

 private:
  static constexpr int kLanePairs = (L::kDims / 2 + 31) / 32;  // of dims, that a lane folds

  // Up to 32 splits: lane i makes the factors of the i-th. Maxima until there are a scan.
  __device__ void fold_32(int split, int kv_head, int column, int n, float2 (&out)[kLanePairs],
                          float& run_max, float& run_sum) const {
    const float* own = at_.state((split + min(at_.lane, n - 1)) * at_.params.n_kv_heads + kv_head);
    const float own_max = __ldcg(own + L::kColumns * L::kDims + column);
    const float own_sum = __ldcg(own + L::kColumns * (L::kDims + 1) + column);
    float until = fmaxf(run_max, own_max);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, until, distance);
      if (at_.lane >= distance) until = fmaxf(before, until);
    }
    const float before = __shfl_up_sync(0xffffffffu, until, 1);
    AttnMerge own_merge(at_.lane == 0 ? run_max : before, own_max);
    run_max = __shfl_sync(0xffffffffu, until, 31);
    constexpr int kBatch = L::kBlocks == 1 ? 32 / kLanePairs : 8;  // states loaded at once
    for (int i0 = 0; i0 < n; i0 += kBatch) {
      float2 x[kBatch][kLanePairs];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i0 + i >= n) break;
        const float* from =
            at_.state((split + i0 + i) * at_.params.n_kv_heads + kv_head) + column * L::kDims;
#pragma unroll
        for (int j = 0; j < kLanePairs; ++j) {
          const int dim = 2 * (at_.lane + 32 * j);
          if (dim < L::kDims) x[i][j] = __ldcg(reinterpret_cast<const float2*>(from + dim));
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i0 + i >= n) break;
        AttnMerge merge = own_merge;
        merge.old_factor = __shfl_sync(0xffffffffu, own_merge.old_factor, i0 + i);
        merge.new_factor = __shfl_sync(0xffffffffu, own_merge.new_factor, i0 + i);
        run_sum = merge(run_sum, __shfl_sync(0xffffffffu, own_sum, i0 + i));
#pragma unroll
        for (int j = 0; j < kLanePairs; ++j) {
          out[j].x = merge(out[j].x, x[i][j].x);
          out[j].y = merge(out[j].y, x[i][j].y);
        }
      }
    }
  }

  const AttnThread<L> at_;
};

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// attn: causal attention of the step's rows over the cache, decode and prefill alike.
//   out[row, head] = sum_t softmax_t(scale * q[row, head] . K[t]) V[t],  t = 0..pos[row]
// The reduction tree depends on the token index only. On the CPU tokens fold in order inside a
// segment of kAttnSegmentTokens, segments fold in order into a split of kAttnSplitTokens, splits
// fold in order into the result, each by (max, sum, output) states; on CUDA the trees are others
// (attn_kernel.cuh, and attn_flash_kernel.cuh for many rows on Hopper). Who computes which part
// does not matter.
// Source: online softmax, arXiv 1805.02867; split KV, arXiv 2205.14135.
#pragma once

#include "kernels/exec_context.hpp"
#include "tensor/kv_view.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

inline constexpr int kAttnSegmentTokens = 64;
inline constexpr int kAttnSplitTokens = 256;
inline constexpr int kAttnMaxGroup = 64;  // query heads that share one KV head

struct AttnArgs {
  struct Static {
    int n_heads, n_kv_heads, head_dim;
    float scale;  // 1/sqrt(head_dim) unless the model says otherwise
    KvLayerView kv;
    int64_t max_rows;
    int64_t n_ctx;  // most tokens a sequence can hold
  } s;
  const StepState* step;
  const float* q;  // [n_rows, n_heads*head_dim]
  float* out;      // [n_rows, n_heads*head_dim]
};

Cost cost(const AttnArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const AttnArgs::Static& s);
int64_t workspace_bytes_cuda(const AttnArgs::Static& s);
void attn_ref(ExecContext& ctx, const AttnArgs& args);
void attn_cpu(ExecContext& ctx, const AttnArgs& args);
void attn_cuda(ExecContext& ctx, const AttnArgs& args);

}  // namespace fathom

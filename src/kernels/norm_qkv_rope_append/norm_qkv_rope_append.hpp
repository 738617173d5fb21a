// SPDX-License-Identifier: Apache-2.0
// norm_qkv_rope_append: the front of an attention block.
//   n = rms_norm(x) * norm;  q, k, v = Wq n + bq, Wk n + bk, Wv n + bv
//   q, k = rms_norm per head (where the model has q_norm, k_norm); q, k = rotate(q, k)
//   K, V of the rows are appended to the cache; q stays for attn.
// Rotation pairs (source: RoFormer, arXiv 2104.09864): `interleaved` turns dims (2i, 2i+1),
// `half_split` turns (i, i + rope_dim/2); dims from rope_dim on pass unchanged.
#pragma once

#include "kernels/exec_context.hpp"
#include "tensor/kv_view.hpp"
#include "tensor/packed_matrix.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

enum class RopePairs { interleaved, half_split };

struct NormQkvRopeAppendArgs {
  struct Static {
    int64_t d_model;
    int n_heads, n_kv_heads, head_dim, rope_dim;
    RopePairs pairs;
    float rms_eps;
    const float* norm;                      // [d_model]
    PackedMatrix q, k, v;                   // [q_dim | kv_dim | kv_dim, d_model]
    const float *q_bias, *k_bias, *v_bias;  // [q_dim | kv_dim | kv_dim] or null
    const float *q_norm, *k_norm;           // [head_dim] or null
    KvLayerView kv;
    int64_t max_rows;
  } s;
  const StepState* step;
  const float* x;     // [n_rows, d_model]
  const float* rope;  // [n_rows, rope_dim] cos, sin pairs
  float* q_out;       // [n_rows, q_dim]
};

Cost cost(const NormQkvRopeAppendArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const NormQkvRopeAppendArgs::Static& s);
int64_t workspace_bytes_cuda(const NormQkvRopeAppendArgs::Static& s);
void norm_qkv_rope_append_ref(ExecContext& ctx, const NormQkvRopeAppendArgs& args);
void norm_qkv_rope_append_cpu(ExecContext& ctx, const NormQkvRopeAppendArgs& args);
void norm_qkv_rope_append_cuda(ExecContext& ctx, const NormQkvRopeAppendArgs& args);

}  // namespace fathom

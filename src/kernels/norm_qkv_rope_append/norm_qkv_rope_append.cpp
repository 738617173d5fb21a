// SPDX-License-Identifier: Apache-2.0
// What norm_qkv_rope_append moves: three matrices, the norm, biases, and one new KV row per token.
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"

namespace fathom {

Cost cost(const NormQkvRopeAppendArgs::Static& s, const StepShape& shape) {
  const int64_t out_dim = s.q.rows + s.k.rows + s.v.rows;
  Cost c;
  c.weight_bytes = s.q.file_bytes + s.k.file_bytes + s.v.file_bytes + s.d_model * 4;
  if (s.q_bias) c.weight_bytes += s.q.rows * 4;
  if (s.k_bias) c.weight_bytes += s.k.rows * 4;
  if (s.v_bias) c.weight_bytes += s.v.rows * 4;
  if (s.q_norm) c.weight_bytes += s.head_dim * 4;
  if (s.k_norm) c.weight_bytes += s.head_dim * 4;
  c.act_read_bytes = shape.n_rows * (s.d_model + s.rope_dim) * 4;
  c.act_written_bytes = shape.n_rows * (s.q.rows * 4 + s.kv.geometry.token_bytes());
  c.flops_useful = 2 * shape.n_rows * s.d_model * out_dim;
  c.flops_issued = c.flops_useful;
  return c;
}

}  // namespace fathom

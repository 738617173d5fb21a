// SPDX-License-Identifier: Apache-2.0
// What attn moves: the cached tokens of each sequence once, K and V of every head.
#include "kernels/attn/attn.hpp"

namespace fathom {

Cost cost(const AttnArgs::Static& s, const StepShape& shape) {
  const int64_t q_dim = int64_t{s.n_heads} * s.head_dim;
  Cost c;
  c.kv_bytes = shape.kv_tokens * s.kv.geometry.token_bytes();
  c.act_read_bytes = shape.n_rows * q_dim * 4;
  c.act_written_bytes = shape.n_rows * q_dim * 4;
  c.flops_useful = 4 * shape.attended_pairs * q_dim;
  c.flops_issued = c.flops_useful;
  return c;
}

}  // namespace fathom

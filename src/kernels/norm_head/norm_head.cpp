// SPDX-License-Identifier: Apache-2.0
// What norm_head moves: the head matrix once if any row wants logits, and the logits.
#include "kernels/norm_head/norm_head.hpp"

namespace fathom {

Cost cost(const NormHeadArgs::Static& s, const StepShape& shape) {
  Cost c;
  if (shape.n_out == 0) return c;
  c.weight_bytes = s.head.file_bytes + s.d_model * 4;
  c.act_read_bytes = shape.n_out * s.d_model * 4;
  c.act_written_bytes = shape.n_out * s.vocab_size * 4;
  c.flops_useful = 2 * shape.n_out * s.d_model * s.vocab_size;
  c.flops_issued = c.flops_useful;
  return c;
}

}  // namespace fathom

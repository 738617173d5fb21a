// SPDX-License-Identifier: Apache-2.0
// What embed moves: one row of the table per token.
#include "kernels/embed/embed.hpp"

namespace fathom {

Cost cost(const EmbedArgs::Static& s, const StepShape& shape) {
  Cost c;
  c.weight_bytes = shape.n_rows * row_bytes(s.table_type, s.d_model);
  c.act_written_bytes = shape.n_rows * (s.d_model + s.rope_dim) * 4;
  return c;
}

}  // namespace fathom

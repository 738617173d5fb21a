// SPDX-License-Identifier: Apache-2.0
// What norm_gate_up_act moves: two matrices and the norm.
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"

namespace fathom {

Cost cost(const NormGateUpActArgs::Static& s, const StepShape& shape) {
  Cost c;
  c.weight_bytes = s.gate.file_bytes + s.up.file_bytes + s.d_model * 4;
  c.act_read_bytes = shape.n_rows * s.d_model * 4;
  c.act_written_bytes = shape.n_rows * s.d_ff * 4;
  c.flops_useful = 4 * shape.n_rows * s.d_model * s.d_ff;
  c.flops_issued = c.flops_useful;
  return c;
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// What down_proj_residual moves: its matrix once, the bias, and the residual stream of each row.
#include "kernels/down_proj_residual/down_proj_residual.hpp"

namespace fathom {

Cost cost(const DownProjResidualArgs::Static& s, const StepShape& shape) {
  Cost c;
  c.weight_bytes = s.w.file_bytes + (s.bias ? s.w.rows * 4 : 0);
  c.act_read_bytes = shape.n_rows * (s.w.cols + s.w.rows) * 4;
  c.act_written_bytes = shape.n_rows * s.w.rows * 4;
  c.flops_useful = 2 * shape.n_rows * s.w.rows * s.w.cols;
  c.flops_issued = c.flops_useful;
  return c;
}

}  // namespace fathom

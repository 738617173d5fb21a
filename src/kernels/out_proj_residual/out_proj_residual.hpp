// SPDX-License-Identifier: Apache-2.0
// out_proj_residual: the attention output enters the residual stream.
//   x += W a + bias
#pragma once

#include "kernels/exec_context.hpp"
#include "tensor/packed_matrix.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

struct OutProjResidualArgs {
  struct Static {
    PackedMatrix w;     // [d_model, q_dim]
    const float* bias;  // [d_model] or null
    int64_t max_rows;
  } s;
  const StepState* step;
  const float* a;  // [n_rows, q_dim]
  float* x;        // [n_rows, d_model] read and written
};

Cost cost(const OutProjResidualArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const OutProjResidualArgs::Static& s);
int64_t workspace_bytes_cuda(const OutProjResidualArgs::Static& s);
void out_proj_residual_ref(ExecContext& ctx, const OutProjResidualArgs& args);
void out_proj_residual_cpu(ExecContext& ctx, const OutProjResidualArgs& args);
void out_proj_residual_cuda(ExecContext& ctx, const OutProjResidualArgs& args);

}  // namespace fathom

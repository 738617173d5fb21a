// SPDX-License-Identifier: Apache-2.0
// down_proj_residual: the feed-forward output enters the residual stream.
//   x += W a + bias
#pragma once

#include "kernels/common/hidden_form.hpp"
#include "kernels/exec_context.hpp"
#include "tensor/packed_matrix.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

struct DownProjResidualArgs {
  struct Static {
    PackedMatrix w;     // [d_model, d_ff]
    const float* bias;  // [d_model] or null
    int64_t max_rows;
    HiddenForm a_form = HiddenForm::floats;
  } s;
  const StepState* step;
  const float* a;  // [n_rows, d_ff], in a_form
  float* x;        // [n_rows, d_model] read and written
};

Cost cost(const DownProjResidualArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const DownProjResidualArgs::Static& s);
int64_t workspace_bytes_cuda(const DownProjResidualArgs::Static& s);
void down_proj_residual_ref(ExecContext& ctx, const DownProjResidualArgs& args);
void down_proj_residual_cpu(ExecContext& ctx, const DownProjResidualArgs& args);
void down_proj_residual_cuda(ExecContext& ctx, const DownProjResidualArgs& args);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// norm_gate_up_act: the front of a SwiGLU feed-forward block (arXiv 2002.05202).
//   n = rms_norm(x) * norm;  h = silu(Wgate n) * (Wup n)
#pragma once

#include "kernels/common/hidden_form.hpp"
#include "kernels/exec_context.hpp"
#include "tensor/packed_matrix.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

struct NormGateUpActArgs {
  struct Static {
    int64_t d_model, d_ff;
    float rms_eps;
    const float* norm;      // [d_model]
    PackedMatrix gate, up;  // [d_ff, d_model]
    int64_t max_rows;
    HiddenForm h_form = HiddenForm::floats;
  } s;
  const StepState* step;
  const float* x;  // [n_rows, d_model]
  float* h;        // [n_rows, d_ff], in h_form
};

Cost cost(const NormGateUpActArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const NormGateUpActArgs::Static& s);
int64_t workspace_bytes_cuda(const NormGateUpActArgs::Static& s);
void norm_gate_up_act_ref(ExecContext& ctx, const NormGateUpActArgs& args);
void norm_gate_up_act_cpu(ExecContext& ctx, const NormGateUpActArgs& args);
void norm_gate_up_act_cuda(ExecContext& ctx, const NormGateUpActArgs& args);

}  // namespace fathom

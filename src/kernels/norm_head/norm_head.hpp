// SPDX-License-Identifier: Apache-2.0
// norm_head: logits of the rows that want them.
//   logits[i] = W (rms_norm(x[out_row[i]]) * norm)
#pragma once

#include "kernels/exec_context.hpp"
#include "tensor/packed_matrix.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

struct NormHeadArgs {
  struct Static {
    int64_t d_model, vocab_size;
    float rms_eps;
    const float* norm;  // [d_model]
    PackedMatrix head;  // [vocab_size, d_model]
    int64_t max_out;    // most rows of logits in one step
  } s;
  const StepState* step;
  const float* x;  // [n_rows, d_model]
  float* logits;   // [n_out, vocab_size]
};

Cost cost(const NormHeadArgs::Static& s, const StepShape& shape);
int64_t workspace_bytes_cpu(const NormHeadArgs::Static& s);
int64_t workspace_bytes_cuda(const NormHeadArgs::Static& s);
void norm_head_ref(ExecContext& ctx, const NormHeadArgs& args);
void norm_head_cpu(ExecContext& ctx, const NormHeadArgs& args);
void norm_head_cuda(ExecContext& ctx, const NormHeadArgs& args);

}  // namespace fathom

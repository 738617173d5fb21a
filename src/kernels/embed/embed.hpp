// SPDX-License-Identifier: Apache-2.0
// embed: the first op of a step. Looks up the rows of the embedding table and computes the rotary
// angles of the rows' positions, which every layer then shares.
//   x[row] = dequantise(table[token[row]])
//   rope[row][2i], rope[row][2i+1] = scale*cos(a), scale*sin(a),  a = pos[row] * inv_freq[i]
#pragma once

#include "kernels/exec_context.hpp"
#include "tensor/dtype.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

struct EmbedArgs {
  struct Static {
    const std::byte* table;  // [vocab_size, d_model] in file layout
    DType table_type;
    int64_t vocab_size;
    int64_t d_model;
    const double* inv_freq;  // [rope_dim/2] scaling applied
    int rope_dim;
    float rope_scale;  // magnitude of the rotation (yarn), else 1
  } s;
  const StepState* step;
  float* x;     // [n_rows, d_model]
  float* rope;  // [n_rows, rope_dim] cos, sin pairs
};

Cost cost(const EmbedArgs::Static& s, const StepShape& shape);
void embed_ref(ExecContext& ctx, const EmbedArgs& args);
void embed_cpu(ExecContext& ctx, const EmbedArgs& args);
void embed_cuda(ExecContext& ctx, const EmbedArgs& args);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The order of a step: what the host says of it, embedding, the blocks of each layer, the head,
// the draw.
#include "model/decode_step.hpp"

#include "model/blocks/attention_gqa.hpp"
#include "model/blocks/ffn_swiglu.hpp"

namespace fathom {

namespace {

// Never cancelled: host and device count their steps alike.
void begin_step(const StepContext& step) {
  const OpScope scope(step.sink, {"begin_step", -1}, Cost{});
  step.ops.begin_step(step.exec, *step.begin);
  finish_op(step);
}

}  // namespace

void decode_step(const StepContext& step) {
  const StepBuffers& b = step.buffers;
  if (step.begin) begin_step(step);
  run_op(step, step.ops.embed, "embed", -1, EmbedArgs{step.plan.embed, &step.state, b.x, b.rope});
  for (int layer = 0; layer < static_cast<int>(step.plan.layers.size()); ++layer) {
    attention_gqa(step, layer);
    ffn_swiglu(step, layer);
  }
  if (step.state.n_out > 0) head_step(step);
  if (step.draw) draw_step(step);
}

void head_step(const StepContext& step) {
  const StepBuffers& b = step.buffers;
  run_op(step, step.ops.norm_head, "norm_head", -1,
         NormHeadArgs{step.plan.head, &step.state, b.x, b.logits});
}

void draw_step(const StepContext& step) { run_op(step, step.ops.draw, "sample", -1, *step.draw); }

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The block as its three ops, in order.
#include "model/blocks/attention_gqa.hpp"

namespace fathom {

void attention_gqa(const StepContext& step, int layer) {
  const LayerPlan& plan = step.plan.layers[layer];
  const StepBuffers& b = step.buffers;
  run_op(step, step.ops.norm_qkv_rope_append, "norm_qkv_rope_append", layer,
         NormQkvRopeAppendArgs{plan.qkv, &step.state, b.x, b.rope, b.q});
  run_op(step, step.ops.attn, "attn", layer, AttnArgs{plan.attn, &step.state, b.q, b.attn});
  run_op(step, step.ops.out_proj_residual, "out_proj_residual", layer,
         OutProjResidualArgs{plan.attn_output, &step.state, b.attn, b.x});
}

}  // namespace fathom

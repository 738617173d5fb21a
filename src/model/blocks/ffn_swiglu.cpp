// SPDX-License-Identifier: Apache-2.0
// The block as its two ops, in order.
#include "model/blocks/ffn_swiglu.hpp"

namespace fathom {

void ffn_swiglu(const StepContext& step, int layer) {
  const LayerPlan& plan = step.plan.layers[layer];
  const StepBuffers& b = step.buffers;
  run_op(step, step.ops.norm_gate_up_act, "norm_gate_up_act", layer,
         NormGateUpActArgs{plan.ffn_front, &step.state, b.x, b.h});
  run_op(step, step.ops.down_proj_residual, "down_proj_residual", layer,
         DownProjResidualArgs{plan.ffn_down, &step.state, b.h, b.x});
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// A gated feed-forward block (arXiv 2002.05202) and its residual.
//   x += Wdown (silu(Wgate n) * (Wup n)),  n = rms_norm(x)
#pragma once

#include "model/step_plan.hpp"

namespace fathom {

void ffn_swiglu(const StepContext& step, int layer);

}  // namespace fathom

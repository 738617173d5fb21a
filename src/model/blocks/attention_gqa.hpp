// SPDX-License-Identifier: Apache-2.0
// Grouped-query attention (arXiv 2305.13245) with rotary positions, and its residual.
//   x += Wo attention(rotate(Wq n), rotate(Wk n), Wv n),  n = rms_norm(x)
#pragma once

#include "model/step_plan.hpp"

namespace fathom {

void attention_gqa(const StepContext& step, int layer);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// One step of a model: a row per token in, logits of the rows that want them out, and on a device
// with memory of its own the tokens drawn from them. Decode, prefill and batches are the same step
// with other rows.
#pragma once

#include "model/step_plan.hpp"

namespace fathom {

void decode_step(const StepContext& step);

// Logits of other rows of the step that has just run: state.out_row and n_out say which.
void head_step(const StepContext& step);

// Tokens drawn from logits that are there: step.draw says which.
void draw_step(const StepContext& step);

}  // namespace fathom

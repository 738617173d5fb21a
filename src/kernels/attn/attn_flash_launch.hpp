// SPDX-License-Identifier: Apache-2.0
// Attention of steps with many rows on the tensor cores of whole warpgroups
// (attn_flash_kernel.cuh).
#pragma once

#include "kernels/attn/attn.hpp"

namespace fathom::cuda {

// Whether attn_cuda leaves a step to attn_flash: from kAttnFlashRows rows on, on compute capability
// 9. The rows' bits are then others than those of few rows.
bool takes_attn_flash(const AttnArgs::Static& s, int n_rows);

// REQUIRES: takes_attn_flash(args.s, args.step->n_rows). Needs no workspace.
void attn_flash(ExecContext& ctx, const AttnArgs& args);

}  // namespace fathom::cuda

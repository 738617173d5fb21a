// SPDX-License-Identifier: Apache-2.0
// attn of a decode step in the shape that the kernel of another engine once had, whose growth with
// depth took a round of work to explain: one warp per split and query head, a fixed number of
// splits, keys staged a few rows at a time, each row folded by itself, values loaded inside the
// chain of the fold, the splits' states combined by a second kernel. It is here to be measured, and
// to be told apart from its variants; steps of many rows go to attn_cuda.
#pragma once

#include <span>

#include "kernels/attn/attn.hpp"
#include "kernels/op_variant.hpp"

namespace fathom::cuda {

inline constexpr int kAttnSeedMaxRows = 32;  // of a step; more go to attn_cuda

struct AttnSeedKnobs {
  int splits = 32;             // of a sequence, each ceil(len / splits) tokens
  int staging = 4;             // rows whose keys a warp loads before it folds the first
  bool stages_values = false;  // their values too
  int warps = 1;               // that share a split
  int window = 4;              // rows of a split that its warps divide among themselves at a time
};

std::span<const OpVariant> attn_seed_variants();

// Throws Error{unsupported} for what the variants are not built for: head dims but 64 and 128,
// caches but f16.
void attn_seed(const AttnSeedKnobs& knobs, ExecContext& ctx, const AttnArgs& args);
int64_t workspace_bytes_attn_seed(const AttnArgs::Static& s);

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// What attn_cuda decides on the host, without a GPU: how many rows share a pass over the cache, and
// how much scratch the states of splits get. It never sees a length.
#pragma once

#include <cstdint>

#include "kernels/attn/attn.hpp"

namespace fathom::cuda {

inline constexpr int kAttnMaxCudaGroup = 16;
inline constexpr int kAttnTileColumns = 8;  // queries of one MMA
inline constexpr int kAttnMaxLaunchRows = 1024;

struct AttnPlan {
  int n_tiles;          // of 8 queries, that a block takes in one pass: 2 for f32, else 1 or 4
  int rows_per_entry;   // rows of a sequence that share a pass
  int rows_per_launch;  // more rows go in several launches
};

// Throws Error{unsupported} for a head dim, format or group that no kernel is built for.
void check_attn_cuda(const AttnArgs::Static& s);

// Few rows are most likely of as many sequences, many rows of one. A device without room for four
// tiles has to do with one. Throws Error{unsupported} where one does not hold a group.
AttnPlan plan_attn_cuda(const AttnArgs::Static& s, int n_rows, bool four_tiles_fit);

// Bytes of the states {output, max, sum} of the queries of one block over one split.
constexpr int64_t attn_slot_bytes(int n_tiles, int head_dim) {
  return int64_t{n_tiles} * kAttnTileColumns * (head_dim + 2) * 4;
}

// Scratch for the states of splits. Where it does not hold those of a step, a block takes all
// splits of its rows, one after the other, to the same bits.
int64_t attn_scratch_bytes(const AttnArgs::Static& s);

}  // namespace fathom::cuda

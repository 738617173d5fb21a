// SPDX-License-Identifier: Apache-2.0
// What attn_cuda decides on the host, without a GPU: how many rows share a pass over the cache, and
// how much scratch the states of units get. It never sees a length.
#pragma once

#include <cstdint>

#include "kernels/attn/attn.hpp"
#include "kernels/exec_context.hpp"

namespace fathom::cuda {

inline constexpr int kAttnMaxCudaGroup = 16;
inline constexpr int kAttnTileColumns = 8;  // queries of one MMA
inline constexpr int kAttnMaxLaunchRows = 1024;
// Tokens of the smallest units of work that blocks may share: of one tile, and of four.
inline constexpr int kAttnUnitTokens = 128;
inline constexpr int kAttnWideUnitTokens = 512;
inline constexpr int kAttnCluster = 16;  // blocks of one tile that see each other's shared memory

// From this many rows of a step on, as with products (kernels/quant): attn_flash_launch.hpp.
inline constexpr int kAttnFlashRows = 33;
inline constexpr int kAttnFlashLaunchRows = 2048;

struct AttnPlan {
  int n_tiles;          // of 8 queries, that a block takes in one pass: 1 or 4
  int rows_per_entry;   // rows of a sequence that share a pass
  int rows_per_launch;  // more rows go in several launches
};

// Throws Error{unsupported} for a head dim, format or group that no kernel is built for.
void check_attn_cuda(const AttnArgs::Static& s);

// Whether there is a kernel of many rows for a step of n_rows, on a device that has its
// instructions: of halves and q8_0, and not of head dims below 64.
bool plans_attn_flash(const AttnArgs::Static& s, int n_rows);

// Few rows are most likely of as many sequences, many rows of one. A device without room for four
// tiles has to do with one. Throws Error{unsupported} where one does not hold a group.
AttnPlan plan_attn_cuda(const AttnArgs::Static& s, int n_rows, bool four_tiles_fit);

// Bytes of the states {output, max, sum} of the queries of one block over one unit: the latter two
// with every four outputs.
constexpr int64_t attn_slot_bytes(int n_tiles, int head_dim) {
  return int64_t{n_tiles} * kAttnTileColumns * head_dim * 6;
}

// Scratch for the states of units. Where it does not hold those of a step, units are larger, at
// last all of an entry, to the same bits.
int64_t attn_scratch_bytes(const AttnArgs::Static& s);

}  // namespace fathom::cuda

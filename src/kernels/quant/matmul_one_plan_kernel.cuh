// SPDX-License-Identifier: Apache-2.0
// The geometry of a product of one row, for host and kernel (matmul_one_kernel.cuh).
#pragma once

#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

inline constexpr int kOneSets = 2;      // of warps that multiply
inline constexpr int kOneStreams = 14;  // these warps, at most
inline constexpr int kOneWarps = kOneStreams + 2;
inline constexpr int kOneThreads = 32 * kOneWarps;

// Items of a product of one row: what is finished together. The first n_double are two row groups:
// gate and up of the same rows, or two whose values turn together; the others are one.
struct OneItems {
  int n_double, n_all;
};
__host__ __device__ inline OneItems one_items(const MatmulParams& p) {
  if (p.bundle == 2) return {p.n_units, p.n_units};
  OneItems out{};
  for (int i = 0; i < p.n_parts; ++i) {
    if (i < p.n_paired) {
      out.n_double += p.parts[i].n_groups / 2;
      out.n_all += p.parts[i].n_groups / 2;
    } else {
      out.n_all += p.parts[i].n_groups;
    }
  }
  return out;
}

// Shared memory of a block: barriers, the sets' rings of stages (n_lanes tiles of a row group), the
// sums of the warps (two row groups a set), the op's scratch, activations.
struct OneShared {
  int full, sums_full, sums_empty, given;  // barriers; at 0 those of free places
  int rings, sums, scratch, acts, info, bytes;
  int stage_bytes;
  int n_stages[kOneSets];
  int first_tiles;  // of given codes that come first: a stage's
  OneItems items;
};
inline constexpr int kOneActBarriers = 4;  // codes and infos: first ones, others
__host__ __device__ inline OneShared one_shared(const MatmulParams& p) {
  constexpr int kBarrier = int{sizeof(cuda::Barrier)};
  OneShared s{};
  s.items = one_items(p);
  s.n_stages[0] = (p.n_stages + 1) / 2;
  s.n_stages[1] = p.n_stages / 2;
  s.stage_bytes = p.n_lanes * p.stage_bytes;
  s.first_tiles = p.n_lanes;
  s.full = p.n_stages * kBarrier;
  s.sums_full = s.full + p.n_stages * kBarrier;
  s.sums_empty = s.sums_full + 2 * kOneSets * kBarrier;
  s.given = s.sums_empty + 2 * kOneSets * kBarrier;
  s.rings = (s.given + kOneActBarriers * kBarrier + 127) / 128 * 128;
  s.sums = s.rings + p.n_stages * s.stage_bytes;
  s.scratch = s.sums + 2 * kOneSets * p.n_lanes * kMmaRows * 4;
  s.acts = s.scratch + p.scratch_bytes;
  s.info = s.acts + static_cast<int>(act_layout(p, 1).info);
  s.bytes = s.acts + static_cast<int>(round16(act_layout(p, 1).bytes));
  return s;
}

}  // namespace fathom::quant

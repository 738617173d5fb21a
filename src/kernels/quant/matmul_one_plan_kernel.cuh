// SPDX-License-Identifier: Apache-2.0
// The geometry of a product of one row, for host and kernel (matmul_one_kernel.cuh).
#pragma once

#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

inline constexpr int kOneStreams = kActWarps - 1;  // warps of a block that multiply

// Units of a product of one row.
__host__ __device__ inline int one_units(const MatmulParams& p) {
  if (p.bundle == 2) return p.n_units;
  int n = 0;
  for (int i = 0; i < p.n_parts; ++i) n += (p.parts[i].n_groups + 1) / 2;
  return n;
}

// Shared memory of a block: barriers of the rings' stages (full, then empty, of each team) and of
// the teams' sums, rings, sums of the warps (two units of them), the op's scratch, activations.
struct OneShared {
  int team_barriers, rings, sums, scratch, acts, bytes;  // barriers of the stages at 0
  int stage_bytes;                                       // of a turn of a team
};
inline constexpr int kOneSums = 2 * kMmaRows;  // floats that a warp leaves of a unit
__host__ __device__ inline OneShared one_shared(const MatmulParams& p) {
  const int n_warps = p.n_teams * p.n_lanes, barrier = int{sizeof(cuda::Barrier)};
  OneShared s{};
  s.stage_bytes = 2 * p.n_lanes * p.stage_bytes;
  s.team_barriers = p.n_teams * 2 * p.n_stages * barrier;
  s.rings = (s.team_barriers + p.n_teams * 4 * barrier + 127) / 128 * 128;
  s.sums = s.rings + p.n_teams * p.n_stages * s.stage_bytes;
  s.scratch = s.sums + 2 * n_warps * kOneSums * 4;
  s.acts = s.scratch + p.scratch_bytes;
  s.bytes = s.acts + (p.in_codes ? 0 : static_cast<int>(round16(act_layout(p, 1).bytes)));
  return s;
}

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with many rows of a step, on the tensor cores of a whole warpgroup:
//   sums[row of weights][row of step] = W a,  a: f16 activations, a power of two for each row
// A block of the grid takes 64 rows of weights for each of two warpgroups, once or twice (kSub),
// and 128 rows of the step. A warp's 16 rows are one row group of tiles: it reads its own tiles out
// of shared memory and turns them into registers (dequant_fragment_kernel.cuh) while the products
// of the 64 columns before run. Two more warps keep the rings of tiles and activations filled.
// K runs in order and is never cut, so the bits of a result depend on its row of weights and its
// activations alone. They are not those of matmul_kernel.cuh, whose activations are int8.
#pragma once

#include "kernels/common/arch.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/quant/dequant_fragment_kernel.cuh"
#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

inline constexpr int kPrefillColumns = 128;  // rows of the step in a block
inline constexpr int kPrefillGroups = 8;     // row groups of a block and sub-tile: one a warp
inline constexpr int kPrefillThreads = 384;  // a warpgroup that fetches, two that multiply
inline constexpr int kActRowBytes = 2 * kFragmentCols;
inline constexpr int kActStageBytes = kPrefillColumns * kActRowBytes;
inline constexpr int kPrefillMaxStages = 8;
inline constexpr int kPrefillSharedBytes = 227 * 1024;
inline constexpr int kPrefillRingBytes = kPrefillSharedBytes - 4 * 8 * kPrefillMaxStages;

// The activations of all rows of the step: blocks of 64 columns, in each [rows][128 bytes], the
// 16-byte pieces of a row swizzled as wgmma_operand says. bf16 in two parts a block: values
// rounded, and what that lost. Rows up to the end of the last 128 are left as they were: what they
// give is dropped.
struct PrefillActs {
  int64_t codes, f16, bf16, bytes;  // where each form stands; the scales of rows at 0
  int n_rows;                       // padded
};
__host__ __device__ inline PrefillActs prefill_acts(const MatmulParams& p, int n_rows) {
  PrefillActs a{};
  a.n_rows = (n_rows + kPrefillColumns - 1) / kPrefillColumns * kPrefillColumns;
  const int64_t form = int64_t{padded_cols(p)} * 2 * a.n_rows;
  a.codes = (int64_t{4} * a.n_rows + 127) / 128 * 128;
  a.f16 = a.codes + (p.any_codes ? form : 0);
  a.bf16 = a.f16 + (p.any_f16 ? form : 0);
  a.bytes = a.bf16 + (p.any_bf16 ? 2 * form : 0);
  return a;
}

// How a launch cuts the work.
struct PrefillPlan {
  int blocks_of[kMatmulMaxParts];  // that share a part's row groups
  int n_tiles;                     // pieces of work
  int n_columns;                   // blocks of 128 rows of the step
  int n_weight_stages, n_act_stages;
  int n_arriving;  // lanes (arriving_lanes.cuh)
};

__host__ __device__ constexpr int prefill_weight_stage(const MatmulParams& p, int n_sub) {
  return kPrefillGroups * n_sub * p.stage_bytes;
}

// Matrices of a bundle are the sub-tiles of a block; others share them out among their row groups.
__host__ __device__ inline int groups_of_block(const MatmulParams& p, int n_sub) {
  return p.bundle > 1 ? kPrefillGroups : kPrefillGroups * n_sub;
}

// The slots of a ring that two sides go round, with the parity of the phase that they wait for.
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next(int n_stages) {
    if (++stage == n_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Shared memory: the rings, barriers at the end.
struct PrefillShared {
  uint32_t weight_full, weight_empty, act_full, act_empty;  // of stage 0; 8 bytes each
  std::byte* weights;
  uint32_t acts;  // address, at a multiple of 1024
};

// One piece of work: a part's row groups from `group` on, for the rows of the step from `col` on.
struct PrefillTile {
  int part, group, col;
};

__device__ inline PrefillTile prefill_tile(const MatmulParams& p, const PrefillPlan& plan,
                                           int n_sub, int index) {
  PrefillTile tile{};
  tile.col = index % plan.n_columns * kPrefillColumns;
  int block = index / plan.n_columns;
  if (p.bundle == 1) {
    while (block >= plan.blocks_of[tile.part]) block -= plan.blocks_of[tile.part++];
  }
  tile.group = block * groups_of_block(p, n_sub);
  return tile;
}

// The part and row group of sub-tile `sub` of warp `warp` (0..7).
__device__ inline int prefill_group(const MatmulParams& p, const PrefillTile& tile, int sub,
                                    int warp, int& group) {
  if (p.bundle > 1) {
    group = tile.group + warp;
    return sub;
  }
  group = tile.group + sub * kPrefillGroups + warp;
  return tile.part;
}

// A warp that fetches tiles of weights: lane i those of warp i % 8, sub-tile i / 8. A row group
// past the end repeats the last one; what it gives is dropped.
template <int kSub>
__device__ inline void fetch_weights(const MatmulParams& p, const PrefillPlan& plan,
                                     const PrefillShared& shared) {
  const int lane = threadIdx.x % 32;
  RingPlace at;
  at.parity = 1;
  for (int index = blockIdx.x; index < plan.n_tiles; index += gridDim.x) {
    const PrefillTile tile = prefill_tile(p, plan, kSub, index);
    int group;
    const MatmulPart& part =
        p.parts[prefill_group(p, tile, lane / kPrefillGroups % kSub, lane % kPrefillGroups, group)];
    group = min(group, part.n_groups - 1);
    const std::byte* from =
        part.data + static_cast<int64_t>(group) * part.n_tiles * part.tile_bytes;
    const uint32_t bytes = static_cast<uint32_t>(part.tile_bytes);
    for (int k = 0; k < part.n_tiles; ++k, from += bytes) {
      const uint32_t full = shared.weight_full + 8 * at.stage;
      cuda::mbarrier_wait(shared.weight_empty + 8 * at.stage, at.parity);
      if (lane == 0) cuda::mbarrier_arrive_expect(full, kSub * kPrefillGroups * bytes);
      __syncwarp();
      if (lane < kSub * kPrefillGroups) {
        const std::byte* to =
            shared.weights + at.stage * prefill_weight_stage(p, kSub) + lane * p.stage_bytes;
        cuda::bulk_copy(cuda::shared_offset(to), from, bytes, full);
      }
      at.next(plan.n_weight_stages);
    }
  }
}

// Blocks of 64 columns of a part's activations, counting bf16's two pieces.
__device__ inline int n_act_stages_of(const MatmulPart& part) {
  return part.n_tiles * (part.tile_cols / kFragmentCols) * (part.type == DType::bf16 ? 2 : 1);
}

// A thread that fetches the activations.
__device__ inline void fetch_acts(const MatmulParams& p, const PrefillPlan& plan,
                                  const PrefillShared& shared, int n_sub) {
  const PrefillActs acts = prefill_acts(p, p.n_rows);
  RingPlace at;
  at.parity = 1;
  for (int index = blockIdx.x; index < plan.n_tiles; index += gridDim.x) {
    const PrefillTile tile = prefill_tile(p, plan, n_sub, index);
    const MatmulPart& part = p.parts[tile.part];
    const int64_t form = part.type == DType::bf16  ? acts.bf16
                         : part.type == DType::f16 ? acts.f16
                                                   : acts.codes;
    const std::byte* from = p.acts + form + static_cast<int64_t>(tile.col) * kActRowBytes;
    const int n = n_act_stages_of(part);
    for (int k = 0; k < n; ++k, from += static_cast<int64_t>(acts.n_rows) * kActRowBytes) {
      const uint32_t full = shared.act_full + 8 * at.stage;
      cuda::mbarrier_wait(shared.act_empty + 8 * at.stage, at.parity);
      cuda::mbarrier_arrive_expect(full, kActStageBytes);
      cuda::bulk_copy(shared.acts + at.stage * kActStageBytes, from, kActStageBytes, full);
      at.next(plan.n_act_stages);
    }
  }
}

// What a warp that multiplies keeps from tile to tile.
struct PrefillWarp {
  int warp, lane;  // of the two warpgroups: 0..7
  RingPlace weights, acts, acts_done;
};

template <DType type>
__device__ __forceinline__ void multiply_64(float (&acc)[64], const uint32_t (&a)[16],
                                            uint64_t operand, bool first) {
#pragma unroll
  for (int step = 0; step < kFragmentCols / 16; ++step) {
    const int adds = step > 0 || !first;
    const uint64_t b = operand + 2 * step;  // 32 bytes
    const uint32_t* r = a + 4 * step;
    if constexpr (type == DType::bf16) {
      cuda::wgmma_bf16(acc, r[0], r[1], r[2], r[3], b, adds);
    } else {
      cuda::wgmma_f16(acc, r[0], r[1], r[2], r[3], b, adds);
    }
  }
}

// Registers of 64 columns of a tile of any type but bf16. (clang-format 14 cannot read attributes
// of lambdas.)
// clang-format off
__device__ __forceinline__ void load_any_fragments(uint32_t (&a)[16], DType type,
                                                   const std::byte* tile, int part, int lane) {
  if (type == DType::bf16) __builtin_unreachable();  // the rest is dense: one jump, not four
  visit_mma_format(type, [&](auto constant) __attribute__((always_inline)) {
    constexpr DType kType = decltype(constant)::value;
    if constexpr (kType != DType::bf16) load_fragments<kType>(a, tile, part, lane);
  });
}
// clang-format on

// All of K for this warp's row groups. Registers of a step are made while the step before runs.
// One loop for all types but bf16: a loop for each would be ten times the code, and the compiler
// then runs products one after the other for want of registers.
template <bool kBf16, int kSub>
__device__ __forceinline__ void multiply_tile(float (&acc)[kSub][64], PrefillWarp& w,
                                              const MatmulParams& p, const PrefillPlan& plan,
                                              const PrefillShared& shared,
                                              const MatmulPart& matrix) {
  constexpr DType type = kBf16 ? DType::bf16 : DType::f16;
  constexpr int kPieces = kBf16 ? 2 : 1;
  const int n_parts = matrix.tile_cols / kFragmentCols;
  const std::byte* own = shared.weights + w.warp * p.stage_bytes;
  const int stage_bytes = prefill_weight_stage(p, kSub);
  // The last call reads what is not there yet, and nobody uses it.
  const auto load = [&](uint32_t(&a)[16], int part, int sub, bool is_there)
      __attribute__((always_inline)) {
    if (part == 0 && sub == 0 && is_there) {
      cuda::mbarrier_wait(shared.weight_full + 8 * w.weights.stage, w.weights.parity);
    }
    const std::byte* at =
        own + w.weights.stage * stage_bytes + sub * kPrefillGroups * p.stage_bytes;
    if constexpr (kBf16) {
      load_fragments<DType::bf16>(a, at, part, w.lane);
    } else {
      load_any_fragments(a, matrix.type, at, part, w.lane);
    }
    if (part == n_parts - 1 && sub == kSub - 1) {
      __syncwarp();
      if (w.lane < plan.n_arriving)
        cuda::mbarrier_arrive(shared.weight_empty + 8 * w.weights.stage);
      w.weights.next(plan.n_weight_stages);
    }
  };
  const auto release_acts = [&] {
    for (int piece = 0; piece < kPieces; ++piece) {
      if (w.lane < plan.n_arriving) cuda::mbarrier_arrive(shared.act_empty + 8 * w.acts_done.stage);
      w.acts_done.next(plan.n_act_stages);
    }
  };
  uint32_t a[2][16];
  load(a[0], 0, 0, true);
  const int n_blocks = matrix.n_tiles * n_parts;
#pragma unroll 1
  for (int block = 0; block < n_blocks; block += 2) {
#pragma unroll
    for (int step = 0; step < 2 * kSub; ++step) {
      const int sub = step % kSub, odd = step / kSub;
      const bool first = odd == 0 && block == 0;
      RingPlace piece = w.acts;
      if (sub == 0) cuda::mbarrier_wait(shared.act_full + 8 * piece.stage, piece.parity);
      cuda::hold(a[step % 2]);
      cuda::hold(acc[sub]);
      cuda::wgmma_fence();
      multiply_64<type>(acc[sub], a[step % 2],
                        cuda::wgmma_operand(shared.acts + piece.stage * kActStageBytes), first);
      piece.next(plan.n_act_stages);
      if constexpr (kPieces == 2) {
        if (sub == 0) cuda::mbarrier_wait(shared.act_full + 8 * piece.stage, piece.parity);
        multiply_64<type>(acc[sub], a[step % 2],
                          cuda::wgmma_operand(shared.acts + piece.stage * kActStageBytes), false);
        piece.next(plan.n_act_stages);
      }
      cuda::wgmma_commit();
      cuda::wgmma_wait<1>();
      if (sub == 0 && !first) release_acts();  // of the block before
      if (sub == kSub - 1) w.acts = piece;
      const int next = step + 1;
      load(a[next % 2], (block + next / kSub) & (n_parts - 1), next % kSub,
           next < 2 * kSub || block + 2 < n_blocks);
    }
  }
  cuda::wgmma_wait<0>();
#pragma unroll
  for (int sub = 0; sub < kSub; ++sub) cuda::hold(acc[sub]);
  release_acts();
}

// The sums of this warp's rows into op. An op that reads what it changes (`read`, `write`) has its
// reads in flight together.
template <int kSub, class Op>
__device__ __forceinline__ void finish_tile(const float (&acc)[kSub][64], const PrefillWarp& w,
                                            const MatmulParams& p, const PrefillTile& tile,
                                            const Op& op) {
  const auto* scales = reinterpret_cast<const float*>(p.acts);
  const int first_col = tile.col + w.lane % 4 * 2;
#pragma unroll
  for (int sub = 0; sub < kSub; ++sub) {
    int group;
    const int part = prefill_group(p, tile, sub, w.warp, group);
    if (p.bundle > 1 && sub == 0) continue;  // its sums go with the last part's
    const int rows = p.parts[part].rows;
    const int row0 = group * kMmaRows + w.lane / 4;
    const auto sums_of = [&](int j, int i, float scale, float(&sums)[2]) {
      const float second = acc[kSub - 1][4 * j + i];
      sums[0] = (sub == 0 || p.bundle > 1 ? acc[0][4 * j + i] : second) * scale;
      sums[1] = second * scale;
    };
    const auto has = [&](int j, int i) {
      return row0 + 8 * (i / 2) < rows && first_col + 8 * j + i % 2 < p.n_rows;
    };
    constexpr int kBatch = 4;
#pragma unroll
    for (int j0 = 0; j0 < 16; j0 += kBatch) {
      float2 scale[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int col = first_col + 8 * (j0 + b);
        scale[b] = col < p.n_rows ? *reinterpret_cast<const float2*>(scales + col) : float2{};
      }
      if constexpr (requires { op.read(0, 0, 0); }) {
        decltype(op.read(0, 0, 0)) before[kBatch][4];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (has(j0 + b, i)) {
              before[b][i] = op.read(0, row0 + 8 * (i / 2), first_col + 8 * (j0 + b) + i % 2);
            }
          }
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float sums[2];
            sums_of(j0 + b, i, i % 2 ? scale[b].y : scale[b].x, sums);
            if (has(j0 + b, i)) {
              op.write(0, row0 + 8 * (i / 2), first_col + 8 * (j0 + b) + i % 2, before[b][i], sums,
                       true);
            }
          }
        }
      } else {
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float sums[2];
            sums_of(j0 + b, i, i % 2 ? scale[b].y : scale[b].x, sums);
            if (has(j0 + b, i)) {
              op(part, row0 + 8 * (i / 2), first_col + 8 * (j0 + b) + i % 2, sums);
            }
          }
        }
      }
    }
  }
}

__device__ inline PrefillShared prefill_shared(const PrefillPlan& plan, std::byte* base) {
  PrefillShared s{};
  s.weight_full = cuda::shared_offset(base + kPrefillRingBytes);
  s.weight_empty = s.weight_full + 8 * kPrefillMaxStages;
  s.act_full = s.weight_empty + 8 * kPrefillMaxStages;
  s.act_empty = s.act_full + 8 * kPrefillMaxStages;
  s.acts = cuda::shared_offset(base);
  s.weights = base + plan.n_act_stages * kActStageBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kPrefillMaxStages; ++i) {
      cuda::mbarrier_init(s.weight_full + 8 * i, 1);
      cuda::mbarrier_init(s.weight_empty + 8 * i, kPrefillGroups * plan.n_arriving);
      cuda::mbarrier_init(s.act_full + 8 * i, 1);
      cuda::mbarrier_init(s.act_empty + 8 * i, kPrefillGroups * plan.n_arriving);
    }
    cuda::mbarrier_init_fence();
  }
  return s;
}

template <int kSub, class Op>
__device__ __forceinline__ void prefill_block(const MatmulParams& p, const PrefillPlan& plan,
                                              const Op& op, std::byte* base) {
  const PrefillShared shared = prefill_shared(plan, base);
  __syncthreads();
  // By a shuffle, so that the compiler knows it for one value a warp.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  cuda::pdl_launch_dependents();
  if (warp < 4) {
    cuda::give_registers<24>();
    if (warp == 0) {
      fetch_weights<kSub>(p, plan, shared);
    } else if (threadIdx.x == 32) {
      cuda::pdl_wait();
      fetch_acts(p, plan, shared, kSub);
    }
  } else {
    cuda::take_registers<240>();
    cuda::pdl_wait();
    PrefillWarp own{warp - 4, static_cast<int>(threadIdx.x % 32), {}, {}, {}};
    for (int index = blockIdx.x; index < plan.n_tiles; index += gridDim.x) {
      const PrefillTile tile = prefill_tile(p, plan, kSub, index);
      const MatmulPart& part = p.parts[tile.part];
      const auto run = [&](auto is_bf16) __attribute__((always_inline)) {
        float acc[kSub][64];
        multiply_tile<decltype(is_bf16)::value, kSub>(acc, own, p, plan, shared, part);
        finish_tile<kSub>(acc, own, p, tile, op);
      };
      if (part.type == DType::bf16) {
        run(std::true_type{});
      } else {
        run(std::false_type{});
      }
    }
  }
}

// One block on a multiprocessor. Op as in matmul_kernel.cuh; units_done is not called.
template <int kSub, class Op>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    matmul_prefill_kernel(const __grid_constant__ MatmulParams p,
                          const __grid_constant__ PrefillPlan plan, const Op op) {
  if constexpr (cuda::kHasWgmma) {
    extern __shared__ __align__(1024) std::byte prefill_memory[];
    prefill_block<kSub>(p, plan, op, prefill_memory);
  }
}

}  // namespace fathom::quant

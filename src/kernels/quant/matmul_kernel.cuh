// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with the rows of a step, and what becomes of them:
//   out[row] = W act(in[row]),  act = quantise(rms_norm(in) * norm) or quantise(in)
// A unit is one row group of each matrix of a bundle (gate and up go together, others alone). The
// blocks of the grid take units in turn; the k-th of the n_lanes warps of a block takes tiles k,
// k + n_lanes, ... of every row group, and the warps' sums are added in warp order. So the bits of
// a result depend on its row of weights and its activations alone.
// Each warp streams its tiles through a ring of its own in shared memory; the ring is filled before
// pdl_wait(), since weights depend on nothing. The last warp of a block streams nothing: it adds
// the sums of a unit while the others go on with the next.
#pragma once

#include <cuda_pipeline.h>

#include <type_traits>

#include "kernels/common/arch.cuh"
#include "kernels/quant/mma_kernel.cuh"

namespace fathom::quant {

inline constexpr int kMatmulMaxLanes = 8;
inline constexpr int kMatmulWarps = kMatmulMaxLanes + 1;
inline constexpr int kMatmulThreads = 32 * kMatmulWarps;
inline constexpr int kMatmulStages = 3;
inline constexpr int kMatmulMaxParts = 3;

// One matrix of a product.
struct MatmulPart {
  const std::byte* data;  // tiles
  DType type;
  int tile_bytes, tile_cols, n_tiles;  // n_tiles of a row group
  int rows, n_groups;
};

struct MatmulParams {
  MatmulPart parts[kMatmulMaxParts];
  int n_parts;
  int bundle;       // parts of a unit: 1, or 2 where all parts have the same row groups
  int n_units;
  int n_lanes;      // warps that share a row group
  int stage_bytes;  // the largest tile
  int cols;            // a multiple of 32
  int n_rows;          // of the step
  const float* in;     // [.., cols]
  const int* in_row;   // [n_rows] rows of `in`, or null: 0, 1, ...
  const float* norm;   // [cols] or null
  float eps;
  bool any_codes, any_f16, any_bf16;  // which forms of activations the parts need
  std::byte* acts;     // the activations of all rows, made before; null: each block makes its own
};

__host__ __device__ constexpr int64_t round16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Columns up to the end of the last tile; activations are zeros there.
__host__ __device__ inline int padded_cols(const MatmulParams& p) {
  return (p.cols + kMmaTileCols - 1) / kMmaTileCols * kMmaTileCols;
}

// Bytes of the activations of n_rows rows, and where each form stands.
struct ActLayout {
  int64_t info, f16, bf16, bytes;  // codes at 0
};
__host__ __device__ inline ActLayout act_layout(const MatmulParams& p, int n_rows) {
  const int64_t blocks = padded_cols(p) / kMmaBlock, steps = padded_cols(p) / 16;
  ActLayout l{};
  l.info = p.any_codes ? blocks * n_rows * kMmaBlock : 0;
  l.f16 = l.info + (p.any_codes ? blocks * n_rows * int64_t{sizeof(ActInfo)} : 0);
  l.bf16 = l.f16 + (p.any_f16 ? steps * n_rows * kMmaStepBytes : 0);
  l.bytes = l.bf16 + (p.any_bf16 ? steps * n_rows * kMmaStepBytes : 0);
  return l;
}
__device__ inline MmaActs acts_at(const MatmulParams& p, const std::byte* at, int n_rows) {
  const ActLayout l = act_layout(p, n_rows);
  return {at, reinterpret_cast<const ActInfo*>(at + l.info), at + l.f16, at + l.bf16, n_rows};
}

// Sum over the block; every thread gets it. `shared` holds kMatmulWarps floats.
__device__ inline float block_sum(float x, float* shared) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float total = shared[0];
  for (int warp = 1; warp < kMatmulWarps; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

// Four of the 32 values of a block: lane j of the block's eight holds values 4j .. 4j + 3. Codes with
// their scale as the CPU makes them (kernels/common/elementwise_simd.hpp); a value that is not
// finite makes the block NaN. All lanes of the warp take part, those of blocks outside with
// stores = false.
__device__ inline void store_act_block(float4 x, bool stores, std::byte* codes, ActInfo* info) {
  constexpr uint32_t kAll = 0xffffffffu, kMagnitude = 0x7fffffffu;
  const int j = threadIdx.x % 8;
  uint32_t bits = max(max(__float_as_uint(x.x) & kMagnitude, __float_as_uint(x.y) & kMagnitude),
                      max(__float_as_uint(x.z) & kMagnitude, __float_as_uint(x.w) & kMagnitude));
  for (int distance = 1; distance < 8; distance *= 2) {
    bits = max(bits, __shfl_xor_sync(kAll, bits, distance));
  }
  const float largest = __uint_as_float(bits);  // as integers, NaN stands above infinity
  const bool finite = largest <= 3.402823466e38f;
  const float inverse = finite && largest > 0.0f ? __fdiv_rn(127.0f, largest) : 0.0f;
  const auto code = [&](float v) {
    return static_cast<uint32_t>(finite ? __float2int_rn(__fmul_rn(v, inverse)) : 0) & 255u;
  };
  const uint32_t word = code(x.x) | code(x.y) << 8 | code(x.z) << 16 | code(x.w) << 24;
  int half = __dp4a(static_cast<int>(word), 0x01010101, 0);  // of values 0..15, or 16..31
  half += __shfl_xor_sync(kAll, half, 1);
  half += __shfl_xor_sync(kAll, half, 2);
  const int other = __shfl_xor_sync(kAll, half, 4);
  if (!stores) return;
  *reinterpret_cast<uint32_t*>(codes + mma_act_byte(4 * j)) = word;
  if (j == 0) {
    const float d = finite ? __fdiv_rn(largest, 127.0f) : __uint_as_float(0x7fc00000u);
    *info = {d, __fmul_rn(d, static_cast<float>(half + other)), -half, -other};
  }
}

// Values 4j .. 4j + 3 of a step of 16, each as the sum of two 16-bit floats: rounded once, with
// what that lost. (One alone loses 8 bits in bf16: a KL of 5e-4 on SmolLM2's shape.) What f16
// cannot hold is split at its largest value.
template <class Real>
__device__ inline void store_real(float4 x, int j, std::byte* to) {
  const float values[4] = {x.x, x.y, x.z, x.w};
  auto* high = reinterpret_cast<Real*>(to);
  auto* low = reinterpret_cast<Real*>(to + kMmaStepBytes / 2);
  constexpr float kLargest = std::is_same_v<Real, __half> ? 65504.0f : 3.3895314e38f;
  for (int i = 0; i < 4; ++i) {
    const bool finite = fabsf(values[i]) <= 3.402823466e38f;
    const float inside = finite ? fminf(fmaxf(values[i], -kLargest), kLargest) : values[i];
    const Real rounded = static_cast<Real>(inside);
    high[mma_act_half(4 * j + i)] = rounded;
    low[mma_act_half(4 * j + i)] =
        static_cast<Real>(finite ? values[i] - static_cast<float>(rounded) : 0.0f);
  }
}

// The activations of one row of the step, by a whole block of threads, into column `col` of
// n_cols.
__device__ inline void make_acts(const MatmulParams& p, int row, std::byte* to, int col, int n_cols,
                                 float* shared) {
  const float* in = p.in + static_cast<int64_t>(p.in_row ? p.in_row[row] : row) * p.cols;
  const auto* in4 = reinterpret_cast<const float4*>(in);
  const auto* norm4 = reinterpret_cast<const float4*>(p.norm);
  const int n4 = p.cols / 4, padded4 = padded_cols(p) / 4;
  float scale = 1.0f;
  if (p.norm) {
    float squares = 0.0f;
    for (int i = threadIdx.x; i < n4; i += kMatmulThreads) {
      const float4 v = in4[i];
      squares = __fmaf_rn(v.x, v.x, squares);
      squares = __fmaf_rn(v.y, v.y, squares);
      squares = __fmaf_rn(v.z, v.z, squares);
      squares = __fmaf_rn(v.w, v.w, squares);
    }
    const float total = block_sum(squares, shared);
    scale = 1.0f / sqrtf(total / static_cast<float>(p.cols) + p.eps);
  }
  const auto value = [&](int i) {
    float4 v = in4[i];
    if (p.norm) {
      const float4 w = norm4[i];
      v = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
    }
    return v;
  };
  const ActLayout l = act_layout(p, n_cols);
  auto* info = reinterpret_cast<ActInfo*>(to + l.info);
#pragma unroll 2
  for (int base = 0; base < padded4; base += kMatmulThreads) {
    const int i = base + threadIdx.x;
    const bool inside = i < padded4;
    const float4 x = i < n4 ? value(i) : float4{};
    if (p.any_codes) {
      const int64_t at = static_cast<int64_t>(i / 8) * n_cols + col;
      store_act_block(x, inside, to + at * kMmaBlock, info + at);
    }
    if (inside) {
      const int64_t at = (static_cast<int64_t>(i / 4) * n_cols + col) * kMmaStepBytes;
      if (p.any_f16) store_real<__half>(x, i % 4, to + l.f16 + at);
      if (p.any_bf16) store_real<__nv_bfloat16>(x, i % 4, to + l.bf16 + at);
    }
  }
}

// Where a warp stands in its stream of tiles.
struct TileStream {
  int unit, part, tile;
};

// The part of a unit, and its row group there.
__device__ inline int part_of(const MatmulParams& p, int unit, int index, int& group) {
  if (p.bundle > 1) {
    group = unit;
    return index;
  }
  int part = 0;
  group = unit;
  while (group >= p.parts[part].n_groups) group -= p.parts[part++].n_groups;
  return part;
}

// Shared memory of a block: rings, sums of the warps (two units of them), activations.
struct MatmulShared {
  int64_t sums, acts, bytes;  // rings at 0
};
__host__ __device__ inline MatmulShared matmul_shared(const MatmulParams& p, int n_columns) {
  MatmulShared s{};
  s.sums = static_cast<int64_t>(p.n_lanes) * kMatmulStages * p.stage_bytes;
  s.acts = s.sums + int64_t{2} * p.bundle * p.n_lanes * kMmaRows * n_columns * 4;
  s.bytes = s.acts + (p.acts ? 0 : round16(act_layout(p, p.n_rows).bytes));
  return s;
}

// What a warp leaves of a part of a unit: [columns][16 rows].
template <int kColumns>
inline constexpr int kWarpSums = kColumns * kMmaRows;

// The sums of row `row` of a unit's parts for one column, the warps' in order.
template <int kColumns>
__device__ __forceinline__ void add_warps(const MatmulParams& p, const float* unit_sums, int row,
                                          int col, float (&totals)[2]) {
  for (int index = 0; index < p.bundle; ++index) {
    const float* of = unit_sums + index * p.n_lanes * kWarpSums<kColumns> + col * kMmaRows + row;
    float total = of[0];
    for (int w = 1; w < p.n_lanes; ++w) total += of[w * kWarpSums<kColumns>];
    totals[index] = total;
  }
}

// Op: struct with
//   __device__ void operator()(int part, int row, int col, const float* sums) const
// called once for each row of weights and row of the step with the sums of the bundle's parts, and
//   static constexpr bool kWholeBlock: all warps take part in this and then in
//   __device__ void unit_done(int unit) const; otherwise the last warp alone does it.
template <int kColumns, bool kOwnActs, class Op>
__global__ void __launch_bounds__(kMatmulThreads, kColumns <= 8 ? 2 : 1)
    matmul_kernel(const MatmulParams p, const Op op) {
  using Shape = MmaShape<kColumns>;
  constexpr int kFull = 1, kEmpty = 3;  // named barriers, of two buffers each
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float norm_sums[kMatmulWarps];
  const MatmulShared place = matmul_shared(p, kColumns);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int n_units = p.n_units;
  std::byte* ring = shared + warp * kMatmulStages * p.stage_bytes;
  auto* sums = reinterpret_cast<float*>(shared + place.sums);
  const bool streams = warp < p.n_lanes;
  const int n_meet = 32 * (p.n_lanes + 1);  // threads of the streaming warps and the last

  // Goes to the warp's next tile; past the last unit it stays there.
  const auto settle = [&](TileStream& s) {
    while (s.unit < n_units) {
      int group;
      if (s.tile < p.parts[part_of(p, s.unit, s.part, group)].n_tiles) return;
      s.tile = warp;
      if (++s.part == p.bundle) {
        s.part = 0;
        s.unit += gridDim.x;
      }
    }
  };
  TileStream next{static_cast<int>(blockIdx.x), 0, warp};
  settle(next);
  const auto fetch = [&](int stage) {
    if (streams && next.unit < n_units) {
      int group;
      const MatmulPart& part = p.parts[part_of(p, next.unit, next.part, group)];
      const std::byte* from =
          part.data + (static_cast<int64_t>(group) * part.n_tiles + next.tile) * part.tile_bytes;
      std::byte* to = ring + stage * p.stage_bytes;
      for (int at = lane * 16; at < part.tile_bytes; at += 32 * 16) {
        __pipeline_memcpy_async(to + at, from + at, 16);
      }
      next.tile += p.n_lanes;
      settle(next);
    }
    __pipeline_commit();
  };
  for (int stage = 0; stage < kMatmulStages; ++stage) fetch(stage);

  cuda::pdl_wait();
  cuda::pdl_launch_dependents();
  const int first_col = static_cast<int>(blockIdx.y) * kColumns;
  const MmaCols cols{first_col, min(p.n_rows - first_col, kColumns)};
  if constexpr (kOwnActs) {
    for (int row = 0; row < p.n_rows; ++row) {
      make_acts(p, row, shared + place.acts, row, p.n_rows, norm_sums);
    }
  }
  const MmaActs acts = acts_at(p, kOwnActs ? shared + place.acts : p.acts, p.n_rows);
  __syncthreads();

  int stage = 0, count = 0;
  const int unit_floats = p.bundle * p.n_lanes * kWarpSums<kColumns>;
  // The warp's sums of a unit into a buffer.
  const auto stream_unit = [&](int unit, float* unit_sums, auto before_writing) {
    for (int index = 0; index < p.bundle; ++index) {
      int group;
      const MatmulPart& part = p.parts[part_of(p, unit, index, group)];
      MmaSums<kColumns> acc = {};
      for (int tile = warp; tile < part.n_tiles; tile += p.n_lanes) {
        __pipeline_wait_prior(kMatmulStages - 1);
        __syncwarp();
        visit_mma_format(part.type, [&](auto constant) {
          fold_tile<decltype(constant)::value, kColumns>(acc, ring + stage * p.stage_bytes, acts,
                                                         cols, tile * part.tile_cols);
        });
        __syncwarp();
        fetch(stage);
        stage = stage + 1 == kMatmulStages ? 0 : stage + 1;
      }
      if (index == 0) before_writing();
      float* own = unit_sums + (index * p.n_lanes + warp) * kWarpSums<kColumns>;
#pragma unroll
      for (int set = 0; set < Shape::kSets; ++set) {
#pragma unroll
        for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
          const int second = i / Shape::kPerLane, col = i % Shape::kPerLane;
          own[(Shape::kept(set, lane) + col) * kMmaRows + lane / 4 + 8 * second] =
              acc[set][second][col];
        }
      }
    }
  };
  const auto finish_rows = [&](int unit, const float* unit_sums, int begin, int stride) {
    int group;
    const int part = part_of(p, unit, p.bundle - 1, group);
    for (int i = begin; i < kMmaRows * cols.n; i += stride) {
      float totals[2];
      add_warps<kColumns>(p, unit_sums, i % kMmaRows, i / kMmaRows, totals);
      const int row = group * kMmaRows + i % kMmaRows;
      if (row < p.parts[part].rows) op(part, row, first_col + i / kMmaRows, totals);
    }
  };

  for (int unit = blockIdx.x; unit < n_units; unit += gridDim.x, ++count) {
    const int buffer = count % 2;
    float* unit_sums = sums + buffer * unit_floats;
    if constexpr (Op::kWholeBlock) {
      if (streams) stream_unit(unit, unit_sums, [] {});
      __syncthreads();
      finish_rows(unit, unit_sums, threadIdx.x, kMatmulThreads);
      op.unit_done(unit);
    } else if (streams) {
      stream_unit(unit, unit_sums, [&] {
        if (count >= 2) cuda::barrier_sync(kEmpty + buffer, n_meet);
      });
      cuda::barrier_arrive(kFull + buffer, n_meet);
    } else if (warp == kMatmulWarps - 1) {
      cuda::barrier_sync(kFull + buffer, n_meet);
      finish_rows(unit, unit_sums, lane, 32);
      __syncwarp();
      const bool is_reused = unit + 2 * static_cast<int>(gridDim.x) < n_units;
      if (is_reused) cuda::barrier_arrive(kEmpty + buffer, n_meet);
    }
  }
}

}  // namespace fathom::quant

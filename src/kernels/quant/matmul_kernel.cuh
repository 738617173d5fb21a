// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with the rows of a step, and what becomes of them:
//   out[row] = W act(in[row]),  act = quantise(rms_norm(in) * norm) or quantise(in)
// A unit is one row group of each matrix of a bundle (gate and up go together, others alone). The
// warps of a block form teams; the teams of the grid take units in turn. Of every row group the
// k-th of the n_lanes warps of a team takes tiles k, k + n_lanes, ..., and the warps' sums are
// added in warp order. So the bits of a result depend on its row of weights and its activations
// alone.
// Each warp streams its tiles through a ring of its own in shared memory; the ring is filled before
// pdl_wait(), since weights depend on nothing. A block of one column takes half of an SM's
// registers and shared memory, so that the next kernel's blocks stand beside it with full rings
// when it ends: the stream of weights does not stop between kernels. The warps of a team add the
// sums of a unit in turn (few columns), while the others go on with the next.
#pragma once

#include <type_traits>

#include "kernels/common/arch.cuh"
#include "kernels/quant/mma_kernel.cuh"

namespace fathom::quant {

inline constexpr int kMatmulMaxLanes = 8;
inline constexpr int kActWarps =
    16;  // of every block that makes activations: the norm's sum has one order
inline constexpr int kActThreads = 32 * kActWarps;
inline constexpr int kMatmulMaxStages = 8;
inline constexpr int kMatmulSharedBytes = 112 << 10;  // of a block: half an SM's, less 1 KB each
inline constexpr int kMatmulActCols = 256;            // activations that a warp makes at a time
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
  int bundle;  // parts of a unit: 1, or 2 where all parts have the same row groups
  int n_units;
  int n_lanes;        // warps of a team: they share a row group
  int n_teams;        // of a block
  int scratch_bytes;  // of a team, for the op
  int n_stages;       // of a warp's ring
  int stage_bytes;    // the largest tile
  int cols;           // a multiple of 32
  int n_rows;         // of the step
  const float* in;    // [.., cols]
  const int* in_row;  // [n_rows] rows of `in`, or null: 0, 1, ...
  const float* norm;  // [cols] or null
  float eps;
  bool any_codes, any_f16, any_bf16;  // which forms of activations the parts need
  std::byte* acts;  // the activations of all rows, made before; null: each block makes its own
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

// Sum over the block; every thread gets it. `shared` holds kActWarps floats.
__device__ inline float block_sum(float x, float* shared) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float total = shared[0];
  for (int warp = 1; warp < kActWarps; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

// Four of the 32 values of a block: lane j of the block's eight holds values 4j .. 4j + 3. Codes
// with their scale as the CPU makes them (kernels/common/elementwise_simd.hpp); a value that is not
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

// How a row becomes activations: in * scale * norm, or in.
struct ActRow {
  const float* in;
  float scale;
};

// By the whole block: the row and the scale of its norm.
__device__ inline ActRow act_row(const MatmulParams& p, int row, float* shared) {
  ActRow out{p.in + static_cast<int64_t>(p.in_row ? p.in_row[row] : row) * p.cols, 1.0f};
  if (!p.norm) return out;
  const auto* in4 = reinterpret_cast<const float4*>(out.in);
  float squares = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < p.cols / 4; i += kActThreads) {
    const float4 v = in4[i];
    squares = __fmaf_rn(v.x, v.x, squares);
    squares = __fmaf_rn(v.y, v.y, squares);
    squares = __fmaf_rn(v.z, v.z, squares);
    squares = __fmaf_rn(v.w, v.w, squares);
  }
  const float total = block_sum(squares, shared);
  out.scale = 1.0f / sqrtf(total / static_cast<float>(p.cols) + p.eps);
  return out;
}

// kMatmulActCols activations from column `first` on, by a warp, into column `col` of n_cols.
__device__ inline void make_acts(const MatmulParams& p, const ActRow& row, int first, std::byte* to,
                                 int col, int n_cols) {
  const auto* in4 = reinterpret_cast<const float4*>(row.in);
  const auto* norm4 = reinterpret_cast<const float4*>(p.norm);
  const ActLayout l = act_layout(p, n_cols);
  auto* info = reinterpret_cast<ActInfo*>(to + l.info);
  constexpr int kSteps = kMatmulActCols / 4 / 32;
  float4 x[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first / 4 + 32 * step + static_cast<int>(threadIdx.x % 32);
    x[step] = 4 * i < p.cols ? in4[i] : float4{};
    if (p.norm && 4 * i < p.cols) {
      const float4 w = norm4[i], v = x[step];
      const float scale = row.scale;
      x[step] = {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = first / 4 + 32 * step + static_cast<int>(threadIdx.x % 32);
    if (p.any_codes) {
      const int64_t at = static_cast<int64_t>(i / 8) * n_cols + col;
      store_act_block(x[step], true, to + at * kMmaBlock, info + at);
    }
    const int64_t at = (static_cast<int64_t>(i / 4) * n_cols + col) * kMmaStepBytes;
    if (p.any_f16) store_real<__half>(x[step], i % 4, to + l.f16 + at);
    if (p.any_bf16) store_real<__nv_bfloat16>(x[step], i % 4, to + l.bf16 + at);
  }
}

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

// Warps of a block that works on n_columns rows of the step.
constexpr int matmul_warps(int n_columns) { return n_columns <= 8 ? kActWarps : 8; }

// Shared memory of a block: barriers of the rings' stages and of the teams, rings, sums of the
// warps (two units of them), the op's scratch, activations.
struct MatmulShared {
  int64_t team_barriers, rings, sums, scratch, acts, bytes;  // barriers of the stages at 0
};
__host__ __device__ inline MatmulShared matmul_shared(const MatmulParams& p, int n_columns) {
  const int64_t n_warps = int64_t{p.n_teams} * p.n_lanes;
  MatmulShared s{};
  s.team_barriers = n_warps * p.n_stages * int64_t{sizeof(cuda::Barrier)};
  s.rings = (s.team_barriers + p.n_teams * 4 * int64_t{sizeof(cuda::Barrier)} + 127) / 128 * 128;
  s.sums = s.rings + n_warps * p.n_stages * p.stage_bytes;
  s.scratch = s.sums + 2 * p.bundle * n_warps * kMmaRows * n_columns * 4;
  s.acts = s.scratch + int64_t{p.n_teams} * p.scratch_bytes;
  s.bytes = s.acts + (p.acts ? 0 : round16(act_layout(p, p.n_rows).bytes));
  return s;
}

// A warp's stream of tiles through its ring.
class TileRing {
 public:
  // `lane` of its team, whose units are first_unit and every n_teams * gridDim.x-th after it.
  __device__ TileRing(const MatmulParams& p, std::byte* shared, const MatmulShared& place, int warp,
                      int lane, int first_unit)
      : p_(p),
        barriers_(reinterpret_cast<cuda::Barrier*>(shared) + warp * p.n_stages),
        slot_(shared + place.rings + warp * p.n_stages * p.stage_bytes),
        lane_(lane),
        unit_(first_unit) {}

  // Starts the first copies.
  __device__ void fill() {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < p_.n_stages; ++i) cuda::copy_barrier_init(barriers_ + i);
    }
    __syncwarp();
    for (int i = 0; i < p_.n_stages; ++i) refill();
  }

  // The warp's next tile, when it is there.
  __device__ __forceinline__ const std::byte* next() const {
    cuda::barrier_wait(barriers_ + stage_, phase_);
    return slot_ + stage_ * p_.stage_bytes;
  }
  // It has been used by all lanes.
  __device__ __forceinline__ void release() {
    __syncwarp();
    refill();
  }

 private:
  // Copies the tile after all those before into the stage, and goes to the next stage.
  __device__ __forceinline__ void refill() {
    if (tile_ < n_tiles_ || open_group()) {
      cuda::warp_copy(slot_ + stage_ * p_.stage_bytes, from_, tile_bytes_, barriers_ + stage_);
      from_ += p_.n_lanes * tile_bytes_;
      tile_ += p_.n_lanes;
    }
    if (++stage_ == p_.n_stages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }
  // The next row group in which the warp has tiles.
  __device__ bool open_group() {
    while (unit_ < p_.n_units) {
      int group;
      const MatmulPart& part = p_.parts[part_of(p_, unit_, index_, group)];
      if (++index_ == p_.bundle) {
        index_ = 0;
        unit_ += p_.n_teams * static_cast<int>(gridDim.x);
      }
      if (lane_ < part.n_tiles) {
        tile_bytes_ = part.tile_bytes;
        from_ = part.data + (static_cast<int64_t>(group) * part.n_tiles + lane_) * tile_bytes_;
        tile_ = lane_;
        n_tiles_ = part.n_tiles;
        return true;
      }
    }
    return false;
  }

  const MatmulParams& p_;
  cuda::Barrier* barriers_;
  std::byte* slot_;
  int lane_;
  int unit_, index_ = 0;  // the row group to open next
  int tile_ = 0, n_tiles_ = 0, tile_bytes_ = 0;
  const std::byte* from_ = nullptr;
  int stage_ = 0;
  uint32_t phase_ = 1;  // the first round of refills turns it to 0
};

// What a warp leaves of a part of a unit: [columns][16 rows].
template <int kColumns>
inline constexpr int kWarpSums = kColumns* kMmaRows;

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
// called once for each row of weights and row of the step with the sums of the bundle's parts. It
// may have, for products of up to kUnitDoneColumns rows of the step,
//   static constexpr int kScratchBytes  of shared memory for a team, and
//   __device__ void unit_done(int unit, std::byte* scratch) const
// called after these by the warp that made them.
inline constexpr int kUnitDoneColumns = 4;
template <class Op>
concept HasUnitDone = requires {
  Op::kScratchBytes;
};

template <int kColumns, bool kOwnActs, class Op>
__global__ void __launch_bounds__(32 * matmul_warps(kColumns), kColumns == 1 ? 2 : 1)
    matmul_kernel(const __grid_constant__ MatmulParams p, const __grid_constant__ Op op) {
  using Shape = MmaShape<kColumns>;
  constexpr bool kOneFinishes = kColumns <= 8;  // a warp of the team, or all of them
  extern __shared__ __align__(128) std::byte shared[];
  cuda::pdl_launch_dependents();
  const MatmulShared place = matmul_shared(p, kColumns);
  const int thread_lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int team = warp / p.n_lanes, lane = warp % p.n_lanes;
  const bool streams = team < p.n_teams;
  const int first_unit = team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  auto* barriers = reinterpret_cast<cuda::Barrier*>(shared + place.team_barriers) + 4 * team;
  cuda::Barrier *full = barriers, *empty = barriers + 2;  // of two buffers each

  TileRing ring(p, shared, place, warp, lane, first_unit);
  if (streams) ring.fill();
  if (streams && lane == 0 && thread_lane == 0) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      cuda::warp_barrier_init(full + buffer, p.n_lanes);
      cuda::warp_barrier_init(empty + buffer, kOneFinishes ? 1 : p.n_lanes);
    }
  }
  cuda::pdl_wait();
  const int first_col = static_cast<int>(blockIdx.y) * kColumns;
  const MmaCols cols{first_col, min(p.n_rows - first_col, kColumns)};
  if constexpr (kOwnActs) {
    __shared__ float norm_sums[kActWarps];
    for (int row = 0; row < p.n_rows; ++row) {
      const ActRow act = act_row(p, row, norm_sums);
      for (int at = warp * kMatmulActCols; at < padded_cols(p); at += kActWarps * kMatmulActCols) {
        make_acts(p, act, at, shared + place.acts, row, p.n_rows);
      }
    }
  }
  const MmaActs acts = acts_at(p, kOwnActs ? shared + place.acts : p.acts, p.n_rows);
  __syncthreads();
  if (!streams) return;

  const int unit_floats = p.bundle * p.n_lanes * kWarpSums<kColumns>;
  auto* team_sums = reinterpret_cast<float*>(shared + place.sums) + 2 * team * unit_floats;
  int count = 0;
  for (int unit = first_unit; unit < p.n_units;
       unit += p.n_teams * static_cast<int>(gridDim.x), ++count) {
    const int buffer = count % 2, use = count / 2;
    float* unit_sums = team_sums + buffer * unit_floats;
    for (int index = 0; index < p.bundle; ++index) {
      int group;
      const MatmulPart& part = p.parts[part_of(p, unit, index, group)];
      MmaSums<kColumns> acc = {};
      visit_mma_format(part.type, [&](auto constant) {
        constexpr DType kType = decltype(constant)::value;
        for (int tile = lane; tile < part.n_tiles; tile += p.n_lanes) {
          fold_tile<kType, kColumns>(acc, ring.next(), acts, cols,
                                     tile * MmaFormat<kType>::kTileCols);
          ring.release();
        }
      });
      if (index == 0 && use > 0) cuda::barrier_wait(empty + buffer, (use - 1) % 2);
      float* own = unit_sums + (index * p.n_lanes + lane) * kWarpSums<kColumns>;
#pragma unroll
      for (int set = 0; set < Shape::kSets; ++set) {
#pragma unroll
        for (int i = 0; i < 2 * Shape::kPerLane; ++i) {
          const int second = i / Shape::kPerLane, col = i % Shape::kPerLane;
          const int of_all = Shape::kept(set, thread_lane) + col;
          if (of_all < kColumns) {
            own[of_all * kMmaRows + thread_lane / 4 + 8 * second] = acc[set][second][col];
          }
        }
      }
    }
    cuda::warp_arrive(full + buffer);
    if (kOneFinishes && lane != count % p.n_lanes) continue;
    cuda::barrier_wait(full + buffer, use % 2);
    int group;
    const int part = part_of(p, unit, p.bundle - 1, group);
    const int begin = kOneFinishes ? thread_lane : lane * 32 + thread_lane;
    for (int i = begin; i < kMmaRows * cols.n; i += kOneFinishes ? 32 : 32 * p.n_lanes) {
      float totals[2];
      add_warps<kColumns>(p, unit_sums, i % kMmaRows, i / kMmaRows, totals);
      const int row = group * kMmaRows + i % kMmaRows;
      if (row < p.parts[part].rows) op(part, row, first_col + i / kMmaRows, totals);
    }
    cuda::warp_arrive(empty + buffer);
    if constexpr (kColumns <= kUnitDoneColumns && HasUnitDone<Op>) {
      op.unit_done(unit, shared + place.scratch + team * Op::kScratchBytes);
    }
  }
}

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with several rows of a step (matmul_one_kernel.cuh: with one), and
// what becomes of them:
//   out[row] = W act(in[row]),  act = quantise(rms_norm(in) * norm) or quantise(in)
// A unit is one row group of each matrix of a bundle (gate and up go together, others alone). The
// warps of a block form teams; the teams of the grid take units in turn. Of every row group the
// k-th of the n_lanes warps of a team takes tiles k, k + n_lanes, ..., and the warps' sums are
// added in warp order. So the bits of a result depend on its row of weights and its activations
// alone.
// Each warp streams its tiles through a ring of its own in shared memory; the ring is filled before
// pdl_wait(), since weights depend on nothing.
#pragma once

#include <type_traits>

#include "kernels/common/arch.cuh"
#include "kernels/common/dynamic_shared.cuh"
#include "kernels/quant/mma_kernel.cuh"

namespace fathom::quant {

inline constexpr int kMatmulMaxLanes = 7;
inline constexpr int kActWarps = 8;  // of a block, but of one row (matmul_one_kernel.cuh)
inline constexpr int kActThreads = 32 * kActWarps;
inline constexpr int kMatmulMaxStages = 8;
inline constexpr int kMatmulSharedBytes = 112 << 10;  // of a block: half an SM's, less 2 KB
inline constexpr int kMatmulActCols = 512;            // activations that a warp makes at a time
inline constexpr int kActCols = kActWarps * kMatmulActCols;  // and a block
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
  int n_paired;     // of one row of the step: parts whose units are two row groups,
  int pair_stride;  // and how many row groups these are apart
  int bundle;       // parts of a unit: 1, or 2 where all parts have the same row groups
  int run;          // of one row of the step: units that a block takes in a row, 1 or 2
  int n_units;
  int n_lanes;        // warps of a team: they share a row group
  int n_teams;        // of a block; of one row: sets of warps
  int scratch_bytes;  // of a warp, for the op
  int n_stages;       // of a warp's ring
  int stage_bytes;    // the largest tile
  int cols;           // a multiple of 32
  int n_rows;         // of the step
  const float* in;    // [.., cols]
  const int* in_row;  // [n_rows] rows of `in`, or null: 0, 1, ...
  const float* norm;  // [cols] or null
  float eps;
  bool in_codes;  // of one row: `in` is its codes and infos (act_layout) already
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

// All threads of a block, of which those that copy are elsewhere in the code.
__device__ inline void block_sync() {
  constexpr int kId = 1;
  cuda::barrier_sync(kId, kActThreads);
}

// The sum of a row's squares has one order: that of the columns of 16 tiles side by side, a tile
// each, where four values and the four 16 further on are a chain, block after block of tiles; the
// chains of a tile as a tree, tiles in order. By a block of 512 threads (matmul_one_kernel.cuh), a
// warp a tile, or of 256.
inline constexpr int kActSums = 16;
__device__ __forceinline__ float add_squares(float sum, const float4& v) {
  sum = __fmaf_rn(v.x, v.x, sum);
  sum = __fmaf_rn(v.y, v.y, sum);
  sum = __fmaf_rn(v.z, v.z, sum);
  return __fmaf_rn(v.w, v.w, sum);
}

// The scale of codes: largest as the largest magnitude of a block (NaN or infinity: not finite).
struct CodeScale {
  bool finite;
  float inverse, d;
  __device__ static CodeScale of(float largest) {
    const bool finite = largest <= 3.402823466e38f;
    return {finite, finite && largest > 0.0f ? __fdiv_rn(127.0f, largest) : 0.0f,
            finite ? __fdiv_rn(largest, 127.0f) : __uint_as_float(0x7fc00000u)};
  }
  // The code is the lowest byte.
  __device__ uint32_t code(float x) const {
    return __float_as_uint(__fadd_rn(__fmul_rn(x, inverse), 12582912.0f));
  }
  __device__ ActInfo info(int lower, int upper) const {
    return {d, __fmul_rn(d, static_cast<float>(lower + upper)), -lower, -upper};
  }
};
__device__ __forceinline__ uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;  // as integers, NaN stands above infinity
}

// A block of which lane k has value k: its codes and info, by a whole warp.
__device__ inline void store_block(float x, std::byte* codes, ActInfo* info) {
  constexpr uint32_t kAll = 0xffffffffu;
  const int lane = threadIdx.x % 32;
  const CodeScale scale =
      CodeScale::of(__uint_as_float(__reduce_max_sync(kAll, magnitude_bits(x))));
  const int code = scale.finite ? static_cast<int8_t>(scale.code(x)) : 0;
  const int lower = __reduce_add_sync(kAll, lane < 16 ? code : 0);
  const int both = __reduce_add_sync(kAll, code);
  codes[mma_act_byte(lane)] = static_cast<std::byte>(code);
  if (lane == 0) *info = scale.info(lower, both - lower);
}

// What the norm multiplies a row with; sums: of its squares.
__device__ __forceinline__ float norm_scale(const MatmulParams& p, const float* sums) {
  float total = sums[0];
#pragma unroll
  for (int i = 1; i < kActSums; ++i) total += sums[i];
  return 1.0f / sqrtf(total / static_cast<float>(p.cols) + p.eps);
}

// Half of the 32 values of a block: lane j of its two holds values 4(j + 2i) .. 4(j + 2i) + 3.
struct ActPiece {
  float4 x[4];
};

// The lane's piece of the kMatmulActCols columns from `first` on; zeros beyond the last column. Not
// from the L1, which may hold what stood there before pdl_wait().
__device__ __forceinline__ ActPiece load_piece(const float* row, int first, int cols) {
  const int lane = threadIdx.x % 32, block = first + lane / 2 * kMmaBlock;
  if (block >= cols) return {};
  const auto* from = reinterpret_cast<const float4*>(row + block) + lane % 2;
  return {__ldcg(from), __ldcg(from + 2), __ldcg(from + 4), __ldcg(from + 6)};
}

template <class Fn>
__device__ __forceinline__ float4 map4(float4 a, float4 b, Fn fn) {
  return {fn(a.x, b.x), fn(a.y, b.y), fn(a.z, b.z), fn(a.w, b.w)};
}

// Codes with their scale as the CPU makes them (kernels/common/elementwise_simd.hpp); a value that
// is not finite makes the block NaN. By whole warps; `codes` and `info` are the block's, which is
// dropped unless `stores`.
__device__ inline void store_codes(const ActPiece& x, bool stores, std::byte* codes,
                                   ActInfo* info) {
  constexpr uint32_t kAll = 0xffffffffu;
  uint32_t bits = 0;
#pragma unroll
  for (const float4& v : x.x) {
    bits = max(bits, max(max(magnitude_bits(v.x), magnitude_bits(v.y)),
                         max(magnitude_bits(v.z), magnitude_bits(v.w))));
  }
  bits = max(bits, __shfl_xor_sync(kAll, bits, 1));
  const CodeScale scale = CodeScale::of(__uint_as_float(bits));
  uint32_t words[4];
  int sums[2] = {};  // of the block's halves
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t first = __byte_perm(scale.code(x.x[i].x), scale.code(x.x[i].y), 0x0040);
    const uint32_t second = __byte_perm(scale.code(x.x[i].z), scale.code(x.x[i].w), 0x0040);
    words[i] = scale.finite ? __byte_perm(first, second, 0x5410) : 0u;
    sums[i / 2] = __dp4a(static_cast<int>(words[i]), 0x01010101, sums[i / 2]);
  }
  for (int& sum : sums) sum += __shfl_xor_sync(kAll, sum, 1);
  if (!stores) return;
  const int j = threadIdx.x % 2;
  *reinterpret_cast<Words2*>(codes + mma_act_byte(4 * j)) = {{words[0], words[2]}};
  *reinterpret_cast<Words2*>(codes + mma_act_byte(4 * j + 8)) = {{words[1], words[3]}};
  if (j == 0) *info = scale.info(sums[0], sums[1]);
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

// Makes the activations of rows; by a whole block of kActThreads.
class ActMaker {
 public:
  // Asks for the norm's weights, which depend on nothing.
  __device__ explicit ActMaker(const MatmulParams& p) : p_(p) {
    if (p.norm) norm_ = load_piece(p.norm, first(), p.cols);
  }

  // Of one row into column `col` of n_cols, up to the column `end`; `shared` holds kActSums
  // floats. Without a norm from the column `begin` on, a multiple of kActCols.
  __device__ void make(int row, std::byte* to, int col, int n_cols, int end, float* shared,
                       int begin = 0) const {
    const float* in = p_.in + static_cast<int64_t>(p_.in_row ? p_.in_row[row] : row) * p_.cols;
    constexpr int kStep = kActCols;
    if (!p_.norm) {
#pragma unroll 1
      for (int at = begin + first(); at < end; at += kBatch * kStep) {
        ActPiece x[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) x[i] = load_piece(in, at + i * kStep, p_.cols);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (at + i * kStep < end) store(x[i], at + i * kStep, to, col, n_cols);
        }
      }
      return;
    }
    const ActPiece held = load_piece(in, first(), p_.cols);
    float chains[2] = {};
    add_chains(chains, held);
    for (int at = first() + kStep; at < end; at += kStep) {
      add_chains(chains, load_piece(in, at, p_.cols));
    }
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (float& chain : chains) {
      for (int distance = 8; distance > 1; distance /= 2) {
        chain += __shfl_xor_sync(0xffffffffu, chain, distance);
      }
    }
    float squares = chains[0] + chains[1];
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    if (lane % 16 == 0) shared[threadIdx.x / 32 * 2 + lane / 16] = squares;
    block_sync();
    const float scale = norm_scale(p_, shared);
    block_sync();
    if (first() < end) store(normed(held, scale, norm_), first(), to, col, n_cols);
    for (int at = first() + kStep; at < end; at += kStep) {
      store(normed(load_piece(in, at, p_.cols), scale, load_piece(p_.norm, at, p_.cols)), at, to,
            col, n_cols);
    }
  }

 private:
  static constexpr int kBatch = 3;  // pieces of a thread whose loads are in flight together

  __device__ static int first() { return static_cast<int>(threadIdx.x / 32) * kMatmulActCols; }
  __device__ static void add_chains(float (&chains)[2], const ActPiece& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) chains[i % 2] = add_squares(chains[i % 2], x.x[i]);
  }
  __device__ static ActPiece normed(const ActPiece& x, float scale, const ActPiece& norm) {
    const auto times = [&](float v, float w) { return __fmul_rn(__fmul_rn(v, scale), w); };
    ActPiece out;
#pragma unroll
    for (int i = 0; i < 4; ++i) out.x[i] = map4(x.x[i], norm.x[i], times);
    return out;
  }
  __device__ void store(const ActPiece& x, int first_col, std::byte* to, int col,
                        int n_cols) const {
    const ActLayout l = act_layout(p_, n_cols);
    const int lane = threadIdx.x % 32;
    const int64_t block = first_col / kMmaBlock + lane / 2;
    const bool inside = block * kMmaBlock < padded_cols(p_);
    if (p_.any_codes) {
      const int64_t at = block * n_cols + col;
      store_codes(x, inside, to + at * kMmaBlock, reinterpret_cast<ActInfo*>(to + l.info) + at);
    }
    if (!inside) return;
    for (int i = 0; i < 4; ++i) {
      const int64_t at = ((2 * block + i / 2) * n_cols + col) * kMmaStepBytes;
      const int j = lane % 2 + 2 * (i % 2);
      if (p_.any_f16) store_real<__half>(x.x[i], j, to + l.f16 + at);
      if (p_.any_bf16) store_real<__nv_bfloat16>(x.x[i], j, to + l.bf16 + at);
    }
  }

  const MatmulParams& p_;
  ActPiece norm_;
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
  s.acts = s.scratch + n_warps * p.scratch_bytes;
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
        slots_(shared + place.rings + warp * p.n_stages * p.stage_bytes),
        lane_(lane),
        unit_(first_unit) {}

  // Starts the first copies.
  __device__ void fill() {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < p_.n_stages; ++i) cuda::copy_barrier_init(barriers_ + i);
    }
    __syncwarp();
    for (int i = 0; i < p_.n_stages; ++i) release();
    phase_ = 0;
  }

  // The warp's next tile, when it is there.
  __device__ __forceinline__ const std::byte* next() const {
    cuda::barrier_wait(barriers_ + stage_, phase_);
    return slots_ + stage_ * p_.stage_bytes;
  }
  // It has been used by all lanes: the tile after all those before goes into its place.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (left_ > 0 || open_group()) {
      const std::byte* const from[] = {from_};
      cuda::warp_copy<true>(slots_ + stage_ * p_.stage_bytes, from, tile_bytes_,
                            barriers_ + stage_);
      from_ += p_.n_lanes * tile_bytes_;
      left_ -= p_.n_lanes;
    }
    if (++stage_ == p_.n_stages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  // The next row group in which the warp has tiles.
  __device__ bool open_group() {
    while (unit_ < p_.n_units) {
      int group;
      const MatmulPart& part = p_.parts[part_of(p_, unit_, index_, group)];
      if (++index_ == p_.bundle) {
        index_ = 0;
        unit_ += p_.n_teams * static_cast<int>(gridDim.x);
      }
      left_ = part.n_tiles - lane_;
      if (left_ > 0) {
        tile_bytes_ = part.tile_bytes;
        from_ = part.data + (static_cast<int64_t>(group) * part.n_tiles + lane_) * tile_bytes_;
        return true;
      }
    }
    return false;
  }

  const MatmulParams& p_;
  cuda::Barrier* barriers_;
  std::byte* slots_;
  int lane_;
  int unit_, index_ = 0;           // the row group to open next
  int left_ = 0, tile_bytes_ = 0;  // tiles of the group from the next one on
  const std::byte* from_ = nullptr;
  int stage_ = 0;
  uint32_t phase_ = 0;
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
// may have, for products of up to kUnitsDoneColumns rows of the step,
//   static constexpr int kScratchBytes  of shared memory for a warp, and
//   __device__ void units_done(int group, int n, std::byte* scratch) const
// called after these, by the warp that made them, for n row groups from `group` on (of all parts).
inline constexpr int kUnitsDoneColumns = 4;
template <class Op>
concept HasUnitsDone = requires {
  Op::kScratchBytes;
};

// Ops in halves, so that what the second needs is under way while the sums are made:
//   auto read(int part, int row, int col) const
//   void write(int part, int row, int col, <what read returned>, const float* sums,
//              bool stores) const        !stores: all but the stores
template <class Op>
concept ReadsFirst = requires(const Op& op) {
  op.read(0, 0, 0);
};

// Ops of products with one row of bundles of two, of which a team takes two neighbours in turn, so
// that the finishing warp has the values of 32 rows, one a lane:
//   float value(const float* sums) const
//   void store(int block, float value) const
template <class Op>
concept TakesBlocks = requires(const Op& op) {
  op.store(0, 0.0f);
};

// Of an op that is one of several, told at run time (sums_op_kernel.cuh), that one.
template <class Op, class Function>
__host__ __device__ __forceinline__ void visit_op(const Op& op, const Function& function) {
  if constexpr (requires { op.visit(function); }) {
    op.visit(function);
  } else {
    function(op);
  }
}

template <int kColumns, bool kOwnActs, class Op>
__global__ void __launch_bounds__(kActThreads, kColumns <= 8 ? 2 : 1)
    matmul_kernel(const __grid_constant__ MatmulParams p, const __grid_constant__ Op op) {
  using Shape = MmaShape<kColumns>;
  constexpr bool kOneFinishes = kColumns <= 8;  // a warp of the team, or all of them
  auto* shared = cuda::dynamic_shared<std::byte>();
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
      cuda::lanes_barrier_init(full + buffer, p.n_lanes);
      cuda::lanes_barrier_init(empty + buffer, kOneFinishes ? 1 : p.n_lanes);
    }
  }
  const int first_col = static_cast<int>(blockIdx.y) * kColumns;
  const MmaCols cols{first_col, min(p.n_rows - first_col, kColumns)};
  if constexpr (kOwnActs) {
    __shared__ float norm_sums[kActSums];
    const ActMaker maker(p);
    cuda::pdl_wait();
    for (int row = 0; row < p.n_rows; ++row) {
      maker.make(row, shared + place.acts, row, p.n_rows, padded_cols(p), norm_sums);
    }
  } else {
    cuda::pdl_wait();
  }
  const MmaActs acts = acts_at(p, kOwnActs ? shared + place.acts : p.acts, p.n_rows);
  __syncthreads();
  if (!streams) return;

  const int unit_floats = p.bundle * p.n_lanes * kWarpSums<kColumns>;
  auto* team_sums = reinterpret_cast<float*>(shared + place.sums) + 2 * team * unit_floats;
  // Adds the sums of the team's count-th unit, or a share of them.
  const auto finish = [&](int unit, int count) {
    const int buffer = count % 2;
    cuda::barrier_wait(full + buffer, count / 2 % 2);
    int group;
    const int part = part_of(p, unit, p.bundle - 1, group);
    const int begin = kOneFinishes ? thread_lane : lane * 32 + thread_lane;
    for (int i = begin; i < kMmaRows * cols.n; i += kOneFinishes ? 32 : 32 * p.n_lanes) {
      float totals[2];
      add_warps<kColumns>(p, team_sums + buffer * unit_floats, i % kMmaRows, i / kMmaRows, totals);
      const int row = group * kMmaRows + i % kMmaRows;
      if (row < p.parts[part].rows) op(part, row, first_col + i / kMmaRows, totals);
    }
    cuda::lanes_arrive(empty + buffer);
    if constexpr (kColumns <= kUnitsDoneColumns && HasUnitsDone<Op>) {
      op.units_done(unit, 1, shared + place.scratch + warp * Op::kScratchBytes);
    }
  };
  int count = 0, turn = 0;
  int pending = -1;  // the unit before, when it is this warp's to finish: others need not wait then
  for (int unit = first_unit; unit < p.n_units;
       unit += p.n_teams * static_cast<int>(gridDim.x), ++count) {
    float* unit_sums = team_sums + count % 2 * unit_floats;
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
      if (index == 0 && count >= 2) cuda::barrier_wait(empty + count % 2, (count / 2 - 1) % 2);
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
    cuda::lanes_arrive(full + count % 2);
    if constexpr (kOneFinishes) {
      if (pending >= 0) finish(pending, count - 1);
      pending = turn == lane ? unit : -1;
      turn = turn + 1 == p.n_lanes ? 0 : turn + 1;
    } else {
      finish(unit, count);
    }
  }
  if (pending >= 0) finish(pending, count - 1);
}

}  // namespace fathom::quant

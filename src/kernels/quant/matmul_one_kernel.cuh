// SPDX-License-Identifier: Apache-2.0
// Products with one row of a step: decode. The same sums as matmul_kernel.cuh, bit for bit, laid
// out for the speed of the memory:
// - A unit is two row groups: gate and up of the same rows, or neighbours of one matrix. A warp
//   takes a tile of each in one turn; both meet the same activations.
// - The last warp of a block streams nothing: it finishes units while the others go on.
// - A block takes half of an SM's registers and shared memory, so that the next kernel's blocks
//   stand beside it with full rings when it ends: the stream of weights does not stop between
//   kernels. Products of the normed residual stream take a little more than half of the shared
//   memory, those into it a little less. They alternate in a step; so two blocks of one product do
//   not share an SM while another has none.
// - Before a block waits for the kernel before it, it rehearses: one round of all that it will do,
//   on what happens to be there, nothing stored. The instructions are in the caches then (cold,
//   they cost 4 to 6 us a kernel on an H200: docs/kernels/2026-11-30-cuda-products.md).
#pragma once

#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

inline constexpr int kOneStreams = kActWarps - 1;  // warps of a block that stream

// Units of a product of one row.
__host__ __device__ inline int one_units(const MatmulParams& p) {
  if (p.bundle == 2) return p.n_units;
  int n = 0;
  for (int i = 0; i < p.n_parts; ++i) n += (p.parts[i].n_groups + 1) / 2;
  return n;
}

// What a unit's two row groups are. The second may lie behind the last of its matrix: then it is
// the first again, and dropped.
struct OneUnit {
  int part[2], group[2];
  bool has_second;
};
__device__ inline OneUnit one_unit(const MatmulParams& p, int unit) {
  if (p.bundle == 2) return {{0, 1}, {unit, unit}, true};
  int part = 0;
  while (2 * unit >= p.parts[part].n_groups) unit -= (p.parts[part++].n_groups + 1) / 2;
  const int group = unit + unit / p.pair_stride * p.pair_stride, second = group + p.pair_stride;
  const bool has_second = second < p.parts[part].n_groups;
  return {{part, part}, {group, has_second ? second : group}, has_second};
}

// The unit that a team takes after `unit`: of each n_teams * gridDim.x runs of units, one.
__device__ inline int unit_after(const MatmulParams& p, int unit) {
  const int skipped = p.run * (p.n_teams * static_cast<int>(gridDim.x) - 1);
  return unit + 1 + (((unit + 1) & (p.run - 1)) == 0 ? skipped : 0);
}

// Shared memory of a block: barriers of the rings' stages and of the teams, rings, sums of the
// warps (two units of them), the op's scratch, activations.
struct OneShared {
  int team_barriers, rings, sums, scratch, acts, bytes;  // barriers of the stages at 0
};
inline constexpr int kOneSums = 2 * kMmaRows;  // floats that a warp leaves of a unit
__host__ __device__ inline OneShared one_shared(const MatmulParams& p) {
  const int n_warps = p.n_teams * p.n_lanes, barrier = int{sizeof(cuda::Barrier)};
  OneShared s{};
  s.team_barriers = n_warps * p.n_stages * barrier;
  s.rings = (s.team_barriers + p.n_teams * 4 * barrier + 127) / 128 * 128;
  s.sums = s.rings + n_warps * p.n_stages * 2 * p.stage_bytes;
  s.scratch = s.sums + 2 * n_warps * kOneSums * 4;
  s.acts = s.scratch + p.scratch_bytes;
  s.bytes = s.acts + static_cast<int>(round16(act_layout(p, 1).bytes));
  return s;
}

// A warp's stream of pairs of tiles through its ring.
class PairRing {
 public:
  __device__ PairRing(const MatmulParams& p, std::byte* shared, const OneShared& place, int warp,
                      int first_unit, int n_units)
      : p_(p),
        barriers_(reinterpret_cast<cuda::Barrier*>(shared) + warp * p.n_stages),
        slots_(shared + place.rings + warp * p.n_stages * 2 * p.stage_bytes),
        lane_(warp % p.n_lanes),
        unit_(first_unit),
        n_units_(n_units) {}

  // Starts the first copies.
  __device__ void fill() {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < p_.n_stages; ++i) cuda::copy_barrier_init(barriers_ + i);
    }
    __syncwarp();
    for (int i = 0; i < p_.n_stages; ++i) release();
    phase_ = 0;
  }
  // Until the warp's next pair is there.
  __device__ __forceinline__ void wait() const { cuda::barrier_wait(barriers_ + stage_, phase_); }
  __device__ __forceinline__ const std::byte* next() const {
    return slots_ + stage_ * 2 * p_.stage_bytes;
  }
  // It has been used by all lanes: the pair after all those before goes into its place.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (left_ > 0 || open_unit()) {
      cuda::warp_copy(slots_ + stage_ * 2 * p_.stage_bytes, from_, tile_bytes_, barriers_ + stage_);
      const int step = p_.n_lanes * tile_bytes_;
      from_[0] += step;
      from_[1] += step;
      left_ -= p_.n_lanes;
    }
    if (++stage_ == p_.n_stages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  // All copies are on their way.
  __device__ bool is_done() const { return left_ <= 0 && unit_ >= n_units_; }

 private:
  // The next unit in which the warp has tiles.
  __device__ bool open_unit() {
    while (unit_ < n_units_) {
      const OneUnit unit = one_unit(p_, unit_);
      unit_ = unit_after(p_, unit_);
      left_ = p_.parts[unit.part[0]].n_tiles - lane_;
      if (left_ <= 0) continue;
      tile_bytes_ = p_.parts[unit.part[0]].tile_bytes;
      for (int i = 0; i < 2; ++i) {
        const MatmulPart& part = p_.parts[unit.part[i]];
        from_[i] =
            part.data + (static_cast<int64_t>(unit.group[i]) * part.n_tiles + lane_) * tile_bytes_;
      }
      return true;
    }
    return false;
  }

  const MatmulParams& p_;
  cuda::Barrier* barriers_;
  std::byte* slots_;
  int lane_, unit_, n_units_;      // the unit to open next
  int left_ = 0, tile_bytes_ = 0;  // tiles of the unit from the next one on
  const std::byte* from_[2] = {};
  int stage_ = 0;
  uint32_t phase_ = 0;
};

// Of ops in halves, the first.
template <class Op>
__device__ __forceinline__ auto read_first(const Op& op, int part, int row) {
  if constexpr (ReadsFirst<Op>) {
    return op.read(part, row, 0);
  } else {
    return 0;
  }
}

// The last warp's part: what becomes of the units of all teams. !is_real: a rehearsal.
template <class Op>
__device__ inline void finish_units(const MatmulParams& p, const Op& op, std::byte* shared,
                                    const OneShared& place, int n_units, bool is_real) {
  constexpr int kRun = TakesBlocks<Op> ? 2 : 1;
  const int lane = threadIdx.x % 32, item = lane / kMmaRows, in_group = lane % kMmaRows;
  const int team_floats = 2 * p.n_lanes * kOneSums;
  int first = static_cast<int>(blockIdx.x);  // run of units
  for (int turn = 0;; ++turn) {
    for (int team = 0; team < p.n_teams; ++team, first += static_cast<int>(gridDim.x)) {
      if (kRun * first >= n_units) return;
      cuda::Barrier* barriers =
          reinterpret_cast<cuda::Barrier*>(shared + place.team_barriers) + 4 * team;
      float value = 0.0f;  // of a block's row `lane`
#pragma unroll
      for (int k = 0; k < kRun; ++k) {
        const int count = kRun * turn + k, buffer = count % 2;
        const OneUnit unit = one_unit(p, kRun * first + k);
        const int part = unit.part[item];
        const int row = unit.group[item] * kMmaRows + in_group;
        const bool own =
            (item == 0 || (p.bundle == 1 && unit.has_second)) && row < p.parts[part].rows;
        const int of_part = p.bundle == 2 ? 1 : part;
        const auto before = read_first(op, of_part, own ? row : 0);
        if (is_real) cuda::barrier_wait(barriers + buffer, count / 2 % 2);
        const float* of = reinterpret_cast<const float*>(shared + place.sums) + team * team_floats +
                          buffer * p.n_lanes * kOneSums + lane;
        float total = of[0];
        for (int w = 1; w < p.n_lanes; ++w) total += of[w * kOneSums];
        if (is_real) cuda::warp_arrive(barriers + 2 + buffer);
        const float other = __shfl_xor_sync(0xffffffffu, total, kMmaRows);
        const float totals[2] = {total, other};
        if constexpr (TakesBlocks<Op>) {
          const float both[2] = {item == 0 ? total : other, item == 0 ? other : total};
          const float of_unit = op.value(both);
          if (item == k) value = of_unit;
          if (k == 1) op.store(first, value, is_real);
        } else if constexpr (ReadsFirst<Op>) {
          op.write(of_part, row, 0, before, &total, is_real && own);
        } else if (is_real && own) {
          op(of_part, row, 0, totals);
        }
        if constexpr (HasUnitsDone<Op>) {
          if (!is_real) return;
          int group = unit.group[0];
          for (int before = 0; before < part; ++before) group += p.parts[before].n_groups;
          op.units_done(group, unit.has_second ? 2 : 1, shared + place.scratch);
        }
      }
      if (!is_real) return;
    }
  }
}

template <class Op>
__global__ void __launch_bounds__(kActThreads, 2)
    matmul_one_kernel(const __grid_constant__ MatmulParams p, const __grid_constant__ Op op) {
  auto* shared = cuda::dynamic_shared<std::byte>();
  __shared__ float norm_sums[kActWarps];
  const OneShared place = one_shared(p);
  const int thread_lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int team = warp / p.n_lanes, lane = warp % p.n_lanes, n_units = one_units(p);
  const bool streams = team < p.n_teams && warp < kOneStreams;
  const int first_unit =
      p.run * (team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x));
  cuda::Barrier* full = reinterpret_cast<cuda::Barrier*>(shared + place.team_barriers) + 4 * team;
  cuda::Barrier* empty = full + 2;  // of two buffers each

  PairRing ring(p, shared, place, warp, first_unit, n_units);
  if (streams) ring.fill();
  // With all of its own copies under way, the next kernel's do not delay this one's activations.
  if (warp == 0 && ring.is_done()) cuda::pdl_launch_dependents();
  if (streams && lane == 0 && thread_lane == 0) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      cuda::warp_barrier_init(full + buffer, p.n_lanes);
      cuda::warp_barrier_init(empty + buffer, 1);
    }
  }
  const ActMaker maker(p);
  const MmaActs acts = acts_at(p, shared + place.acts, 1);
  float* sums = reinterpret_cast<float*>(shared + place.sums) + team * 2 * p.n_lanes * kOneSums +
                lane * kOneSums;
#pragma unroll 1
  for (int pass = cuda::kHasPdl ? 0 : 1; pass < 2; ++pass) {
    const bool is_real = pass == 1;
    __syncthreads();
    if (is_real) cuda::pdl_wait();
    if (p.in_codes) {
      if (is_real) maker.take(shared + place.acts);
    } else {
      const int end = is_real ? padded_cols(p) : min(padded_cols(p), kMatmulActCols * kActWarps);
      maker.make(0, shared + place.acts, 0, 1, end, norm_sums);
    }
    __syncthreads();
    if (is_real && warp == 0) cuda::pdl_launch_dependents();
    if (warp == kOneStreams) finish_units(p, op, shared, place, n_units, is_real);
    if (!streams) continue;
    int count = 0;
    for (int unit = first_unit; unit < n_units; unit = unit_after(p, unit), ++count) {
      const MatmulPart& part = p.parts[one_unit(p, unit).part[0]];
      MmaSums<1> acc[2] = {};
      visit_mma_format(part.type, [&](auto constant) {
        constexpr DType kType = decltype(constant)::value;
        for (int tile = lane; tile < part.n_tiles; tile += p.n_lanes) {
          if (is_real) ring.wait();
          fold_tiles_of_one<kType>(acc, ring.next(), acts, tile * MmaFormat<kType>::kTileCols);
          if (!is_real) break;
          ring.release();
        }
      });
      const int buffer = count % 2;
      if (count >= 2) cuda::barrier_wait(empty + buffer, (count / 2 - 1) % 2);
      float* own = sums + buffer * p.n_lanes * kOneSums;
      if (thread_lane % 4 == 0) {
        for (int i = 0; i < 4; ++i) own[thread_lane / 4 + 8 * i] = acc[i / 2][0][i % 2][0];
      }
      if (!is_real) break;
      cuda::warp_arrive(full + buffer);
    }
  }
}

}  // namespace fathom::quant

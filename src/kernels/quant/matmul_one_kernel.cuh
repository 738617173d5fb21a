// SPDX-License-Identifier: Apache-2.0
// Products with one row of a step: decode. The same sums as matmul_kernel.cuh, bit for bit, laid
// out for the speed of the memory:
// - A unit is two row groups: gate and up of the same rows, or neighbours of one matrix. In a turn
//   the warps of a team take a tile of each, neighbours in memory; both meet the same activations.
// - One warp copies for the teams and finishes their units while they go on. So those that multiply
//   do hardly anything else: on an H200 copying for themselves cost them a fifth of their time,
//   finding the next unit another (docs/kernels/2026-11-30-cuda-products.md).
// - A block takes half of an SM's registers and shared memory, so that the next kernel's blocks
//   stand beside it with full rings when it ends: the stream of weights does not stop between
//   kernels. Products of the normed residual stream take a little more than half of the shared
//   memory, those into it a little less. They alternate in a step; so two blocks of one product do
//   not share an SM while another has none.
// - All ops of a step are one kernel (sums_op_kernel.cuh), so that its instructions are in the
// caches
//   when a block starts: cold, they cost 4 to 6 us a kernel.
#pragma once

#include "kernels/quant/matmul_one_plan_kernel.cuh"

namespace fathom::quant {

// What a unit's two row groups are. Without a second one that is the first again, and dropped.
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

// A team's ring: a stage holds the tiles of a turn, those of the first row group, then those of the
// second.
struct TeamRing {
  cuda::Barrier *full, *empty;  // [n_stages]
  std::byte* stages;
  __device__ TeamRing(const MatmulParams& p, std::byte* shared, const OneShared& place, int team)
      : full(reinterpret_cast<cuda::Barrier*>(shared) + team * 2 * p.n_stages),
        empty(full + p.n_stages),
        stages(shared + place.rings + team * p.n_stages * place.stage_bytes) {}
};
// Where a stream stands in a ring.
struct OneRingPlace {
  int stage = 0;
  uint32_t round = 0;
  __device__ void next(int n_stages) {
    if (++stage < n_stages) return;
    stage = 0;
    ++round;
  }
};
// Two full and two empty barriers of a team's sums.
__device__ inline cuda::Barrier* sum_barriers(std::byte* shared, const OneShared& place, int team) {
  return reinterpret_cast<cuda::Barrier*>(shared + place.team_barriers) + 4 * team;
}

__device__ inline void init_barriers(const MatmulParams& p, std::byte* shared,
                                     const OneShared& place) {
  if (threadIdx.x % 32 == 0) {
    for (int team = 0; team < p.n_teams; ++team) {
      const TeamRing ring(p, shared, place, team);
      for (int i = 0; i < p.n_stages; ++i) {
        cuda::copy_barrier_init(ring.full + i);
        cuda::warp_barrier_init(ring.empty + i, p.n_lanes);
      }
      for (int i = 0; i < 4; ++i) {
        cuda::lanes_barrier_init(sum_barriers(shared, place, team) + i, i < 2 ? p.n_lanes : 1);
      }
    }
  }
  __syncwarp();
}

// Of ops in halves, the first.
template <class Op>
__device__ __forceinline__ auto read_first(const Op& op, int part, int row) {
  if constexpr (ReadsFirst<Op>) {
    return op.read(part, row, 0);
  } else {
    return 0;
  }
}

// The turns of a block's teams in the order in which they are used. Several teams have one turn a
// unit each.
class OneTurns {
 public:
  __device__ OneTurns(const MatmulParams& p, int n_units)
      : p_(p), n_units_(n_units), run_(static_cast<int>(blockIdx.x)) {
    open_unit();
  }
  __device__ bool done() const { return p_.run * run_ >= n_units_; }
  __device__ void next() {
    tile_ += p_.n_lanes;
    at_.next(p_.n_stages);
    if (tile_ < n_tiles_) return;
    tile_ = 0;
    ++count_;
    if (++k_ == p_.run || unit() >= n_units_) {
      k_ = 0;
      run_ += static_cast<int>(gridDim.x);
      if (++team_ == p_.n_teams) {
        team_ = 0;
        cycle_ = at_;
        cycle_count_ = count_;
      } else {
        at_ = cycle_;
        count_ = cycle_count_;
      }
    }
    open_unit();
  }

  __device__ int team() const { return team_; }
  __device__ int unit() const { return p_.run * run_ + k_; }
  __device__ int block() const { return run_; }  // of two units
  __device__ int k() const { return k_; }
  __device__ int tile() const { return tile_; }
  __device__ int n_tiles() const { return n_tiles_; }
  __device__ bool ends_unit() const { return tile_ + p_.n_lanes >= n_tiles_; }
  __device__ int count() const { return count_; }  // of the team's units before
  __device__ const OneRingPlace& at() const { return at_; }

 private:
  __device__ void open_unit() {
    if (!done()) n_tiles_ = p_.parts[one_unit(p_, unit()).part[0]].n_tiles;
  }

  const MatmulParams& p_;
  int n_units_, run_, team_ = 0, k_ = 0, tile_ = 0, n_tiles_ = 0, count_ = 0, cycle_count_ = 0;
  OneRingPlace at_, cycle_;
};

// The last warp's part: it copies the tiles of all turns, and finishes units a ring's length
// behind, when their last tiles have been used.
template <class Op>
class OneKeeper {
 public:
  __device__ OneKeeper(const MatmulParams& p, const Op& op, std::byte* shared,
                       const OneShared& place, int n_units)
      : p_(p), op_(op), shared_(shared), place_(place), copied_(p, n_units), ended_(p, n_units) {}

  __device__ void fill() {
    init_barriers(p_, shared_, place_);
    while (!copied_.done() && copied_.at().round == 0) copy();
  }
  __device__ void run() {
    const int cycles = (p_.n_stages + p_.run - 1) / p_.run;
    const int behind = p_.n_teams == 1 ? p_.n_stages : cycles * p_.run * p_.n_teams;
    while (!ended_.done()) {
      if (!copied_.done()) copy();
      if (!copied_.done() && n_ahead_ < behind) continue;
      if (ended_.ends_unit()) visit_op(op_, [&](const auto& op) { finish(op); });
      ended_.next();
      --n_ahead_;
    }
  }

 private:
  __device__ void copy() {
    const TeamRing ring(p_, shared_, place_, copied_.team());
    if (copied_.unit() != open_) {
      open_ = copied_.unit();
      const OneUnit unit = one_unit(p_, open_);
      for (int i = 0; i < 2; ++i) {
        const MatmulPart& part = p_.parts[unit.part[i]];
        from_[i] = part.data + static_cast<int64_t>(unit.group[i]) * part.n_tiles * part.tile_bytes;
      }
      tile_bytes_ = p_.parts[unit.part[0]].tile_bytes;
    }
    const OneRingPlace at = copied_.at();
    if (at.round > 0) cuda::barrier_wait(ring.empty + at.stage, (at.round - 1) % 2);
    const int bytes = min(p_.n_lanes, copied_.n_tiles() - copied_.tile()) * tile_bytes_;
    cuda::warp_copy(ring.stages + at.stage * place_.stage_bytes, from_, bytes,
                    ring.full + at.stage);
    from_[0] += bytes;
    from_[1] += bytes;
    copied_.next();
    ++n_ahead_;
  }

  template <class Of>
  __device__ __forceinline__ void finish(const Of& op) {
    const int lane = threadIdx.x % 32, item = lane / kMmaRows, in_group = lane % kMmaRows;
    const int team = ended_.team(), count = ended_.count(), buffer = count % 2;
    cuda::Barrier* barriers = sum_barriers(shared_, place_, team);
    const OneUnit unit = one_unit(p_, ended_.unit());
    const int part = unit.part[item];
    const int row = unit.group[item] * kMmaRows + in_group;
    const bool own =
        (item == 0 || (p_.bundle == 1 && unit.has_second)) && row < p_.parts[part].rows;
    const int of_part = p_.bundle == 2 ? 1 : part;
    const auto before = read_first(op, of_part, own ? row : 0);
    cuda::barrier_wait(barriers + buffer, count / 2 % 2);
    const float* of = reinterpret_cast<const float*>(shared_ + place_.sums) +
                      (2 * team + buffer) * p_.n_lanes * kOneSums + lane;
    float total = of[0];
    for (int w = 1; w < p_.n_lanes; ++w) total += of[w * kOneSums];
    cuda::lanes_arrive(barriers + 2 + buffer);
    const float other = __shfl_xor_sync(0xffffffffu, total, kMmaRows);
    const float totals[2] = {total, other};
    if constexpr (TakesBlocks<Of>) {
      const float both[2] = {item == 0 ? total : other, item == 0 ? other : total};
      const float value = op.value(both);
      if (item == ended_.k()) value_ = value;
      if (ended_.k() == 1) op.store(ended_.block(), value_);
    } else if constexpr (ReadsFirst<Of>) {
      op.write(of_part, row, 0, before, &total, own);
    } else if (own) {
      op(of_part, row, 0, totals);
    }
    if constexpr (HasUnitsDone<Of>) {
      int group = unit.group[0];
      for (int i = 0; i < part; ++i) group += p_.parts[i].n_groups;
      op.units_done(group, unit.has_second ? 2 : 1, shared_ + place_.scratch);
    }
  }

  const MatmulParams& p_;
  const Op& op_;
  std::byte* shared_;
  const OneShared& place_;
  OneTurns copied_, ended_;
  int n_ahead_ = 0, open_ = -1, tile_bytes_ = 0;
  const std::byte* from_[2];
  float value_ = 0.0f;  // of a block's row `lane`
};

// What a warp that multiplies needs to know.
struct OneStream {
  const MatmulParams& p;
  TeamRing ring;
  int stage_bytes, lane;  // of the team
  cuda::Barrier *full, *empty;
  float* sums;
  const std::byte* acts;  // in shared memory
  int info;               // where infos begin there, and in p.in
  int unit, n_units;      // the next one
  int count = 0;          // of units
  OneRingPlace at;

  __device__ OneStream(const MatmulParams& params, std::byte* shared, const OneShared& place,
                       int team, int team_lane, int units)
      : p(params),
        ring(params, shared, place, team),
        stage_bytes(place.stage_bytes),
        lane(team_lane),
        full(sum_barriers(shared, place, team)),
        empty(full + 2),
        sums(reinterpret_cast<float*>(shared + place.sums) +
             (team * 2 * params.n_lanes + team_lane) * kOneSums),
        acts(shared + place.acts),
        info(static_cast<int>(act_layout(params, 1).info)),
        unit(params.run * (team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x))),
        n_units(units) {}

  // Of the next unit, if there is one.
  __device__ DType type() const {
    return unit < n_units ? p.parts[one_unit(p, unit).part[0]].type : DType{};
  }

  __device__ __forceinline__ OneActs made_acts(int tile, int thread_lane) const {
    const auto* made = reinterpret_cast<const std::byte*>(p.in);
    return device_acts(made, made + info, tile * kMmaTileBlocks, thread_lane);
  }

  // Takes the units up to one of another type.
  template <DType kType, bool kInCodes>
  __device__ __forceinline__ void run() {
    using Format = MmaFormat<kType>;
    constexpr bool kReal = Format::kKind == MmaKind::real;
    constexpr bool kMade = kInCodes && !kReal;
    const int n_tiles = (p.cols + Format::kTileCols - 1) / Format::kTileCols;
    const int thread_lane = cuda::opaque(threadIdx.x % 32);
    OneActs next;  // made ones: the loads for a turn are under way in the one before
    if constexpr (kMade) next = made_acts(min(lane, n_tiles - 1), thread_lane);
    do {
      MmaSums<1> acc[2] = {};
      for (int first = 0; first < n_tiles; first += p.n_lanes) {
        const int n = min(p.n_lanes, n_tiles - first), tile = first + lane;
        const std::byte* tiles = ring.stages + at.stage * stage_bytes + lane * Format::kTileBytes;
        OneActs now;
        if constexpr (kMade) {
          now = next;
          const int after = tile + p.n_lanes < n_tiles ? tile + p.n_lanes : min(lane, n_tiles - 1);
          next = made_acts(after, thread_lane);
        }
        cuda::barrier_wait(ring.full + at.stage, at.round % 2);
        if (lane < n) {
          if constexpr (kReal) {
            const MmaActs of = acts_at(p, acts, 1);
            for (int w = 0; w < 2; ++w) {
              fold_floats<kType, 1>(acc[w], tiles + w * n * Format::kTileBytes, of, {0, 1},
                                    tile * (Format::kTileCols / 16));
            }
          } else {
            if constexpr (!kMade) {
              now = shared_acts(acts, acts + info, tile * kMmaTileBlocks, thread_lane);
            }
            fold_codes_of_one<Format>(acc, tiles, tiles + n * Format::kTileBytes, now, thread_lane);
          }
        }
        cuda::warp_arrive(ring.empty + at.stage);
        at.next(p.n_stages);
      }
      leave_sums(acc);
      unit = unit_after(p, unit);
    } while (unit < n_units && (!p.mixed || type() == kType));
  }

  __device__ __forceinline__ void leave_sums(const MmaSums<1> (&acc)[2]) {
    const int buffer = count % 2, thread_lane = threadIdx.x % 32;
    if (count >= 2) cuda::barrier_wait(empty + buffer, (count / 2 - 1) % 2);
    float* own = sums + buffer * p.n_lanes * kOneSums;
    if (thread_lane % 4 == 0) {
      for (int i = 0; i < 4; ++i) own[thread_lane / 4 + 8 * i] = acc[i / 2][0][i % 2][0];
    }
    cuda::lanes_arrive(full + buffer);
    ++count;
  }
};

// What all warps of a block do together before a product: once the kernel before has ended, the
// activations.
template <bool kInCodes>
__device__ __forceinline__ void begin_one(const MatmulParams& p, std::byte* acts) {
  __shared__ float norm_sums[kActWarps];
  const ActMaker maker(p);
  block_sync();
  cuda::pdl_wait();
  if constexpr (!kInCodes) {
    maker.make(0, acts, 0, 1, padded_cols(p), norm_sums);
    block_sync();
  }
}

// kInCodes: p.in_codes, apart since it needs registers.
template <class Op, bool kInCodes>
__global__ void __launch_bounds__(kActThreads, 2)
    matmul_one_kernel(const __grid_constant__ MatmulParams p, const __grid_constant__ Op op) {
  auto* shared = cuda::dynamic_shared<std::byte>();
  const OneShared place = one_shared(p);
  const int warp = threadIdx.x / 32, team = warp / p.n_lanes, n_units = one_units(p);
  if (warp == kOneStreams) {
    OneKeeper<Op> keeper(p, op, shared, place, n_units);
    keeper.fill();
    cuda::pdl_launch_dependents();
    begin_one<kInCodes>(p, shared + place.acts);
    keeper.run();
    return;
  }
  OneStream stream(p, shared, place, team, warp % p.n_lanes, team < p.n_teams ? n_units : 0);
  DType type = stream.type();
  begin_one<kInCodes>(p, shared + place.acts);
  for (; stream.unit < stream.n_units; type = stream.type()) {
    visit_mma_format(
        type, [&](auto constant) { stream.template run<decltype(constant)::value, kInCodes>(); });
  }
}

}  // namespace fathom::quant

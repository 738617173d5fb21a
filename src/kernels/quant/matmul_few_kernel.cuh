// SPDX-License-Identifier: Apache-2.0
// Products with 5 to 32 rows of a step, on GPUs with bulk copies. The same sums as
// matmul_kernel.cuh, bit for bit, laid out so that a block reads the activations once for many row
// groups: at 32 rows they are three bytes a weight for each row group that reads them alone, five
// times what the weights are.
// - A chunk is `slots` row groups. A block goes through the lanes of its chunk in order (the k-th
//   of n_lanes has the tiles k, k + n_lanes, ...), and a unit is one lane of one row group, by one
//   warp: sums of a lane are added to the row group's total in the order of lanes.
// - Where there are too few row groups for that, the blocks of a cluster share a chunk, a lane
//   each, and add their sums through each other's shared memory.
// - One warp copies: lane w the tiles of warp w through a ring of its own, another the activations
//   of a tile's columns through a ring of all.
#pragma once

#include "kernels/quant/matmul_kernel.cuh"

namespace fathom::quant {

inline constexpr int kFewStreams = kActWarps - 1;  // warps of a block that multiply
inline constexpr int kFewMaxSlots = 10;

// How a product is cut.
struct FewPlan {
  // Row groups of a chunk; of a bundle of two, both of a pair count. Of whole chunks at least one
  // for each warp: then none is ever two lanes ahead of another.
  int slots;
  int n_chunks;
  int n_shares;      // blocks that share a chunk: 1, or n_lanes
  int n_stages;      // of a warp's ring
  int n_act_stages;  // of the ring of activations: the tiles of a lane, or of two at most
  int fewest_tiles;  // of a lane; the first n_longer have one more
  int n_longer;
  int n_arriving;  // lanes (arriving_lanes.cuh)

  __host__ __device__ int n_tiles(int lane) const { return fewest_tiles + (lane < n_longer); }
};

// Shared memory: barriers (full and empty of each warp's stages, then of those of activations, two
// a slot), rings, activations, totals.
struct FewShared {
  int act_barriers, turns, rings, acts, totals, bytes;
};
template <int kColumns>
inline constexpr int kFewSliceBytes = kMmaTileBlocks* kColumns*(kMmaBlock + int{sizeof(ActInfo)});
template <int kColumns>
__host__ __device__ inline FewShared few_shared(const MatmulParams& p, const FewPlan& plan) {
  constexpr int kBarrier = int{sizeof(cuda::Barrier)};
  FewShared s{};
  s.act_barriers = kFewStreams * 2 * plan.n_stages * kBarrier;
  s.turns = s.act_barriers + 2 * plan.n_act_stages * kBarrier;
  s.rings = (s.turns + 2 * plan.slots * kBarrier + 127) / 128 * 128;
  s.acts = s.rings + kFewStreams * plan.n_stages * p.stage_bytes;
  s.totals = s.acts + plan.n_act_stages * kFewSliceBytes<kColumns>;
  s.bytes = s.totals + plan.slots * kMmaRows * kColumns * 4;
  return s;
}

// Full and empty barriers of a ring, and where a user of it stands.
struct FewRing {
  cuda::Barrier *full, *empty;
  int n_stages;
  int stage = 0;
  uint32_t round = 0;
  __device__ FewRing(std::byte* barriers, int n)
      : full(reinterpret_cast<cuda::Barrier*>(barriers)), empty(full + n), n_stages(n) {}
  __device__ void next() { skip(1); }
  // n stages on, or (n < 0) back.
  __device__ void skip(int n) {
    stage += n;
    while (stage >= n_stages) {
      stage -= n_stages;
      ++round;
    }
    while (stage < 0) {
      stage += n_stages;
      --round;
    }
  }
  // For whom fills it: the stage has been used.
  __device__ bool is_free() const {
    return round == 0 || cuda::barrier_test(empty + stage, (round - 1) % 2);
  }
  __device__ void wait_full() const { cuda::barrier_wait(full + stage, round % 2); }
};

// The lanes that a block goes through, and in each every kFewStreams-th unit from `first` on.
class FewUnits {
 public:
  __device__ FewUnits(const MatmulParams& p, const FewPlan& plan, int first)
      : p_(p),
        plan_(plan),
        first_lane_(plan.n_shares == 1 ? 0 : static_cast<int>(blockIdx.x) % plan.n_shares),
        chunk_(static_cast<int>(blockIdx.x) / plan.n_shares),
        lane_(first_lane_),
        slot_(first) {
    wrap();
  }
  __device__ bool done() const { return chunk_ >= plan_.n_chunks; }
  __device__ void next() {
    slot_ += kFewStreams;
    wrap();
  }
  __device__ void next_lane() {
    ++n_lanes_;
    if (plan_.n_shares == 1 && ++lane_ < p_.n_lanes) return;
    lane_ = first_lane_;
    ++n_chunks_;
    chunk_ += static_cast<int>(gridDim.x) / plan_.n_shares;
  }

  __device__ int lane() const { return lane_; }
  __device__ int slot() const { return slot_; }
  __device__ bool is_last_lane() const { return lane_ == p_.n_lanes - 1; }
  __device__ int n_tiles() const { return plan_.n_tiles(lane_); }
  __device__ int n_lanes() const { return n_lanes_; }  // before this one
  __device__ int n_chunks() const { return n_chunks_; }
  // Which of the bundle (of one or two), and which unit of the product; beyond the last: not live.
  __device__ int index() const { return slot_ & (p_.bundle - 1); }
  __device__ int unit() const { return (chunk_ * plan_.slots + slot_) >> (p_.bundle - 1); }
  __device__ bool is_live() const { return unit() < p_.n_units; }

 private:
  __device__ void wrap() {
    while (slot_ >= plan_.slots && !done()) {
      slot_ -= plan_.slots;
      next_lane();
    }
  }
  const MatmulParams& p_;
  const FewPlan& plan_;
  int first_lane_, chunk_, lane_, slot_, n_lanes_ = 0, n_chunks_ = 0;
};

// What a lane of the copying warp does: the tiles of a warp, one after the other.
class FewTiles {
 public:
  __device__ FewTiles(const MatmulParams& p, const FewPlan& plan, std::byte* shared,
                      const FewShared& place, int warp)
      : p_(p),
        units_(p, plan, warp),
        ring_(shared + warp * 2 * plan.n_stages * int{sizeof(cuda::Barrier)}, plan.n_stages),
        stages_(shared + place.rings + warp * plan.n_stages * p.stage_bytes) {
    open();
  }
  __device__ bool done() const { return units_.done(); }
  __device__ bool is_free() const { return ring_.is_free(); }
  __device__ bool is_first_round() const { return ring_.round == 0; }
  __device__ void copy() {
    const cuda::BulkCopy tile[] = {{stages_ + ring_.stage * p_.stage_bytes, from_, bytes_}};
    cuda::thread_copy<true>(tile, ring_.full + ring_.stage);
    ring_.next();
    from_ += p_.n_lanes * bytes_;
    if (--left_ > 0) return;
    units_.next();
    open();
  }

 private:
  __device__ void open() {
    while (!units_.done() && !units_.is_live()) units_.next();
    if (units_.done()) return;
    int group;
    const MatmulPart& part = p_.parts[part_of(p_, units_.unit(), units_.index(), group)];
    bytes_ = part.tile_bytes;
    left_ = units_.n_tiles();
    from_ = part.data + (int64_t{group} * part.n_tiles + units_.lane()) * bytes_;
  }
  const MatmulParams& p_;
  FewUnits units_;
  FewRing ring_;
  std::byte* stages_;
  int bytes_ = 0, left_ = 0;
  const std::byte* from_ = nullptr;
};

// And another: the activations of the lanes' tiles.
template <int kColumns>
class FewActs {
 public:
  __device__ FewActs(const MatmulParams& p, const FewPlan& plan, std::byte* shared,
                     const FewShared& place)
      : p_(p),
        lanes_(p, plan, 0),
        ring_(shared + place.act_barriers, plan.n_act_stages),
        stages_(shared + place.acts) {}
  __device__ bool done() const { return lanes_.done(); }
  __device__ bool is_free() const { return ring_.is_free(); }
  __device__ void copy() {
    constexpr int kCodes = kMmaTileBlocks * kColumns * kMmaBlock;
    constexpr int kInfos = kMmaTileBlocks * kColumns * int{sizeof(ActInfo)};
    const int tile = lanes_.lane() + k_ * p_.n_lanes;
    std::byte* to = stages_ + ring_.stage * kFewSliceBytes<kColumns>;
    const std::byte* infos = p_.acts + act_layout(p_, kColumns).info;
    const cuda::BulkCopy slice[] = {{to, p_.acts + int64_t{tile} * kCodes, kCodes},
                                    {to + kCodes, infos + int64_t{tile} * kInfos, kInfos}};
    cuda::thread_copy<false>(slice, ring_.full + ring_.stage);
    ring_.next();
    if (++k_ < lanes_.n_tiles()) return;
    k_ = 0;
    lanes_.next_lane();
  }

 private:
  const MatmulParams& p_;
  FewUnits lanes_;
  FewRing ring_;
  std::byte* stages_;
  int k_ = 0;
};

// A warp that multiplies.
template <int kColumns, class Op>
class FewStream {
  // Columns of a fold: those of all 32 at once do not fit into the registers.
  static constexpr int kFoldColumns = kColumns < 16 ? kColumns : 16;
  static constexpr int kFolds = kColumns / kFoldColumns;
  using Shape = MmaShape<kColumns>;
  static constexpr int kValues = Shape::kSets * 2 * Shape::kPerLane;  // of a lane

 public:
  __device__ FewStream(const MatmulParams& p, const FewPlan& plan, const Op& op, std::byte* shared,
                       const FewShared& place, int warp)
      : p_(p),
        plan_(plan),
        op_(op),
        units_(p, plan, warp),
        tiles_(shared + warp * 2 * plan.n_stages * int{sizeof(cuda::Barrier)}, plan.n_stages),
        acts_(shared + place.act_barriers, plan.n_act_stages),
        turns_(reinterpret_cast<cuda::Barrier*>(shared + place.turns)),
        wholes_(turns_ + plan.slots),
        stages_(shared + place.rings + warp * plan.n_stages * p.stage_bytes),
        slices_(shared + place.acts),
        totals_(reinterpret_cast<float*>(shared + place.totals)) {}

  __device__ void run() {
    while (!units_.done()) {
      MmaSums<kFoldColumns> acc[kFolds] = {};
      const bool live = units_.is_live();
      int group = 0;
      const int part = live ? part_of(p_, units_.unit(), units_.index(), group) : 0;
      visit_mma_format(p_.parts[part].type, [&](auto constant) {
        using Format = MmaFormat<decltype(constant)::value>;
        if constexpr (Format::kKind != MmaKind::real) {
#pragma unroll 1
          for (int n = units_.n_tiles(); n > 0; --n) {
            acts_.wait_full();
            if (live) {
              tiles_.wait_full();
              const std::byte* codes = slices_ + acts_.stage * kFewSliceBytes<kColumns>;
              const auto* infos =
                  reinterpret_cast<const ActInfo*>(codes + kMmaTileBlocks * kColumns * kMmaBlock);
#pragma unroll
              for (int i = 0; i < kFolds; ++i) {
                fold_codes<Format, kFoldColumns>(acc[i], stages_ + tiles_.stage * p_.stage_bytes,
                                                 {codes, infos, nullptr, nullptr, kColumns},
                                                 {i * kFoldColumns, kFoldColumns}, 0);
              }
              cuda::warp_arrive(tiles_.empty + tiles_.stage, plan_.n_arriving);
              tiles_.next();
            }
            if (n == 1) break;
            cuda::warp_arrive(acts_.empty + acts_.stage, plan_.n_arriving);
            acts_.next();
          }
        }
      });
      float sums[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        constexpr int kSets = Shape::kSets / kFolds;
        const int set = i / (2 * Shape::kPerLane);
        sums[i] = acc[set / kSets][set % kSets][i / Shape::kPerLane % 2][i % Shape::kPerLane];
      }
      if (plan_.n_shares == 1) {
        add(sums, group, live);
      } else {
        store(units_.slot(), sums);
      }
      // Now only: so no warp comes two lanes ahead of one that waits for its turn.
      cuda::warp_arrive(acts_.empty + acts_.stage, plan_.n_arriving);
      acts_.next();
      // The next unit is of the same lane or of the one after it.
      const int n_lanes = units_.n_lanes(), n_tiles = units_.n_tiles();
      units_.next();
      if (units_.n_lanes() == n_lanes) acts_.skip(-n_tiles);
    }
  }

  // Of a chunk that a cluster shares, each block takes the sums of some units of the product.
  __device__ void add_shares(int warp) const {
    const int rank = static_cast<int>(blockIdx.x) % plan_.n_shares;
    const int first = static_cast<int>(blockIdx.x) / plan_.n_shares * plan_.slots / p_.bundle;
    const int n = min(plan_.slots / p_.bundle, p_.n_units - first);
    constexpr int kOfWarp = (kValues + kActWarps - 1) / kActWarps;
    for (int unit = rank; unit < n; unit += plan_.n_shares) {
      int group;
      const int part = part_of(p_, first + unit, p_.bundle - 1, group);
      float sums[2][kOfWarp];
      for (int index = 0; index < p_.bundle; ++index) {
#pragma unroll
        for (int k = 0; k < kOfWarp; ++k) {
          const int i = warp + k * kActWarps;
          if (i >= kValues) break;
          float* of = totals_ + value_at(unit * p_.bundle + index, i);
          float total = *cuda::cluster_map(of, 0u);
          for (int lane = 1; lane < plan_.n_shares; ++lane) {
            total += *cuda::cluster_map(of, static_cast<unsigned>(lane));
          }
          sums[index][k] = total;
        }
      }
#pragma unroll
      for (int k = 0; k < kOfWarp; ++k) {
        const int i = warp + k * kActWarps;
        if (i >= kValues) break;
        const float both[2] = {sums[0][k], p_.bundle == 2 ? sums[1][k] : 0.0f};
        const int row = row_of(group, i), col = col_of(i);
        if (row >= p_.parts[part].rows || col >= p_.n_rows) continue;
        visit_op(op_, [&](const auto& op) { op(part, row, col, both); });
      }
    }
  }

 private:
  // Value i of a lane: its row of weights and its row of the step.
  __device__ static int row_of(int group, int i) {
    const int lane = threadIdx.x % 32;
    return group * kMmaRows + lane / 4 + 8 * (i / Shape::kPerLane % 2);
  }
  __device__ static int col_of(int i) {
    const int lane = threadIdx.x % 32;
    return Shape::kept(i / (2 * Shape::kPerLane), lane) + i % Shape::kPerLane;
  }
  __device__ static int value_at(int slot, int i) {
    return (slot * kValues + i) * 32 + static_cast<int>(threadIdx.x % 32);
  }
  __device__ void store(int slot, const float (&sums)[kValues]) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) totals_[value_at(slot, i)] = sums[i];
  }

  // Adds a lane's sums to the slot's total, in the order of lanes; after the last one the values
  // are whole.
  __device__ void add(float (&sums)[kValues], int group, bool live) const {
    const int slot = units_.slot(), before = units_.n_lanes();
    if (before > 0) cuda::barrier_wait(turns_ + slot, (before - 1) & 1);
    if (units_.lane() > 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) sums[i] = totals_[value_at(slot, i)] + sums[i];
    } else if (p_.bundle == 2 && units_.index() == 0 && units_.n_chunks() > 0) {
      // The other one has read this one's total.
      cuda::barrier_wait(wholes_ + slot + 1, (units_.n_chunks() - 1) & 1);
    }
    const bool is_whole = units_.is_last_lane();
    if (!is_whole || (p_.bundle == 2 && units_.index() == 0)) {
      store(slot, sums);
    } else {
      write(group, sums, live);
    }
    if (is_whole && p_.bundle == 2) cuda::warp_arrive(wholes_ + slot, plan_.n_arriving);
    cuda::warp_arrive(turns_ + slot, plan_.n_arriving);
  }
  __device__ void write(int group, const float (&sums)[kValues], bool live) const {
    const int slot = units_.slot(), part = p_.bundle - 1;
    int group_of_part = group;
    const int of = p_.bundle == 1 ? part_of(p_, units_.unit(), 0, group_of_part) : part;
    if (p_.bundle == 2) cuda::barrier_wait(wholes_ + slot - 1, units_.n_chunks() & 1);
    if (!live) return;
    const int rows = p_.parts[of].rows;
    visit_op(op_, [&](const auto& op) { write_with(op, of, group, slot, rows, sums); });
  }
  template <class Of>
  __device__ void write_with(const Of& op, int of, int group, int slot, int rows,
                             const float (&sums)[kValues]) const {
    if constexpr (ReadsFirst<Of>) {
      float first[kValues];
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        first[i] = op.read(of, min(row_of(group, i), rows - 1), min(col_of(i), p_.n_rows - 1));
      }
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int row = row_of(group, i), col = col_of(i);
        op.write(of, row, col, first[i], &sums[i], row < rows && col < p_.n_rows);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int row = row_of(group, i), col = col_of(i);
        const float both[2] = {p_.bundle == 2 ? totals_[value_at(slot - 1, i)] : sums[i], sums[i]};
        if (row < rows && col < p_.n_rows) op(of, row, col, both);
      }
    }
  }

  const MatmulParams& p_;
  const FewPlan& plan_;
  const Op& op_;
  FewUnits units_;
  FewRing tiles_, acts_;
  cuda::Barrier *turns_, *wholes_;  // of each slot: a phase a lane, a phase a chunk
  const std::byte *stages_, *slices_;
  float* totals_;
};

// A lane for each barrier of a warp's ring, the last warp for the rest.
__device__ inline void init_few(const FewPlan& plan, std::byte* shared, const FewShared& place) {
  constexpr int kBarrier = int{sizeof(cuda::Barrier)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto init = [&](int at, int n, int n_arrivals) {
    auto* barriers = reinterpret_cast<cuda::Barrier*>(shared + at);
    for (int i = lane; i < n; i += 32) cuda::warp_barrier_init(barriers + i, n_arrivals);
  };
  if (warp < kFewStreams) {
    const int full = warp * 2 * plan.n_stages * kBarrier;
    init(full, plan.n_stages, 1);
    init(full + plan.n_stages * kBarrier, plan.n_stages, plan.n_arriving);
  } else {
    init(place.act_barriers, plan.n_act_stages, 1);
    init(place.act_barriers + plan.n_act_stages * kBarrier, plan.n_act_stages,
         plan.slots * plan.n_arriving);
    init(place.turns, 2 * plan.slots, plan.n_arriving);
  }
  cuda::barrier_init_fence();
  __syncthreads();
}

// By the last warp: the first tiles of all before the wait for what makes the activations.
template <int kColumns>
__device__ inline void copy_few(const MatmulParams& p, const FewPlan& plan, std::byte* shared,
                                const FewShared& place) {
  const int lane = threadIdx.x % 32;
  const bool has_tiles = lane < kFewStreams, has_acts = lane == kFewStreams;
  FewTiles tiles(p, plan, shared, place, has_tiles ? lane : 0);
  FewActs<kColumns> acts(p, plan, shared, place);
  while (has_tiles && !tiles.done() && tiles.is_first_round()) tiles.copy();
  cuda::pdl_wait();
  bool done = false;
  while (!done) {
    bool waits = false;
    if (has_tiles && !tiles.done()) {
      if (tiles.is_free()) tiles.copy();
      waits = true;
    } else if (has_acts && !acts.done()) {
      if (acts.is_free()) acts.copy();
      waits = true;
    }
    done = !waits;
  }
  __syncwarp();
}

// p.acts: as make_matmul_acts leaves them for kColumns rows. Empty where there are no bulk copies.
template <int kColumns, class Op>
__global__ void __launch_bounds__(kActThreads, 2)
    matmul_few_kernel(const __grid_constant__ MatmulParams p, const __grid_constant__ FewPlan plan,
                      const __grid_constant__ Op op) {
  if constexpr (cuda::kHasPdl) {
    auto* shared = cuda::dynamic_shared<std::byte>();
    cuda::pdl_launch_dependents();
    const FewShared place = few_shared<kColumns>(p, plan);
    const int warp = threadIdx.x / 32;
    init_few(plan, shared, place);
    FewStream<kColumns, Op> stream(p, plan, op, shared, place, warp);
    if (warp == kFewStreams) {
      copy_few<kColumns>(p, plan, shared, place);
    } else {
      cuda::pdl_wait();
      stream.run();
    }
    if (plan.n_shares == 1) return;
    cuda::cluster_arrive();
    cuda::cluster_wait();
    stream.add_shares(warp);
    cuda::cluster_arrive();
    cuda::cluster_wait();  // the others have read this block's sums
  }
}

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// Products with one row of a step: decode. The same sums as matmul_kernel.cuh, bit for bit, laid
// out for the speed of the memory:
// - A stage is n_lanes tiles of a row group, which lie side by side: one bulk copy. The warps that
//   multiply are two sets of n_lanes, a tile of a stage each; a set has every second row group of
//   the block and a ring of its own. Fourteen warps hide each other's latencies, which seven with
//   two tiles each did not.
// - One warp copies, another finishes two row groups at a time, a lane a row.
// - What a warp needs to know of the matrices it finds out before the wait for the kernel before.
// - A block takes half of an SM's registers and about half of its shared memory, so that the next
//   kernel's blocks stand beside it with full rings when it ends: the stream of weights does not
//   stop between kernels. Shares are such that each SM gets one block of each product.
// - All ops of a step are one kernel (sums_op_kernel.cuh), so that its instructions are in the
//   caches when a block starts: cold, they cost 4 to 6 us a kernel.
#pragma once

#include "kernels/quant/matmul_one_plan_kernel.cuh"

namespace fathom::quant {

// The row groups of a set, in their order: of double items one of the two, of the others every
// second.
class OneGroups {
 public:
  __device__ OneGroups(const MatmulParams& p, const OneItems& items, int set)
      : p_(p), items_(items), set_(set), item_(p.run * static_cast<int>(blockIdx.x)) {
    if (!is_double() && set_ == 1) skip();
  }
  __device__ __forceinline__ bool done() const { return item_ >= items_.n_all; }
  __device__ __forceinline__ void next() {
    if (is_double()) {
      skip();
      if (!is_double() && set_ == 1) skip();
    } else {
      skip();
      skip();
    }
  }
  __device__ __forceinline__ int item() const { return item_; }
  __device__ __forceinline__ int place(int& part) const {
    if (p_.bundle == 2) {
      part = set_;
      return item_;
    }
    part = 0;
    int group = item_;
    for (; part < p_.n_parts - 1; ++part) {
      const int n = part < p_.n_paired ? p_.parts[part].n_groups / 2 : p_.parts[part].n_groups;
      if (group < n) break;
      group -= n;
    }
    if (part < p_.n_paired) group += (group / p_.pair_stride + set_) * p_.pair_stride;
    return group;
  }

 private:
  __device__ __forceinline__ bool is_double() const { return item_ < items_.n_double; }
  __device__ __forceinline__ void skip() {
    ++item_;
    if ((item_ & (p_.run - 1)) == 0) item_ += p_.run * (static_cast<int>(gridDim.x) - 1);
  }

  const MatmulParams& p_;
  const OneItems& items_;
  int set_, item_;
};

// Row groups of a part that a set of the block takes. Of bundles, of all parts.
__device__ inline int own_groups(const MatmulParams& p, int part, int set) {
  const int block = static_cast<int>(blockIdx.x), grid = static_cast<int>(gridDim.x);
  const auto own_below = [&](int n) { return n > block ? (n - block + grid - 1) / grid : 0; };
  if (p.bundle == 2) return p.run * own_below(p.n_units / p.run);
  int first = 0, n_double = 0;
  for (int i = 0; i < part; ++i) {
    first += i < p.n_paired ? p.parts[i].n_groups / 2 : p.parts[i].n_groups;
    if (i < p.n_paired) n_double = first;
  }
  if (part < p.n_paired) {
    return own_below(first + p.parts[part].n_groups / 2) - own_below(first);
  }
  const int doubles = own_below(n_double), begin = own_below(first) - doubles;
  const int end = own_below(first + p.parts[part].n_groups) - doubles;
  return (end + 1 - set) / 2 - (begin + 1 - set) / 2;
}

// Where a stage stands in a ring.
struct OneRingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next(int n) {
    const bool wraps = ++slot == n;
    slot = wraps ? 0 : slot;
    parity ^= wraps ? 1 : 0;
  }
};
__device__ __forceinline__ cuda::Barrier* one_barrier(std::byte* shared, int from, int i) {
  return reinterpret_cast<cuda::Barrier*>(shared + from) + i;
}
inline constexpr int kOneSumLanes = 8;  // of a warp, that leave sums and arrive

// Copies a set's tiles.
class OneCopies {
 public:
  __device__ OneCopies(const MatmulParams& p, std::byte* shared, const OneShared& place, int set)
      : p_(p),
        shared_(shared),
        place_(place),
        groups_(p, place.items, set),
        first_(set == 0 ? 0 : place.n_stages[0]),
        n_(place.n_stages[set]) {
    open();
  }
  __device__ __forceinline__ bool done() const { return left_ <= 0; }
  __device__ __forceinline__ void wait() const {
    cuda::barrier_wait(one_barrier(shared_, 0, first_ + at_.slot), at_.parity ^ 1);
  }
  template <bool kCopies>
  __device__ __forceinline__ void pass() {
    const int bytes = min(left_, stage_bytes_);
    if constexpr (kCopies) {
      const std::byte* const from[] = {from_};
      cuda::warp_copy<true>(shared_ + place_.rings + (first_ + at_.slot) * place_.stage_bytes, from,
                            bytes, one_barrier(shared_, place_.full, first_ + at_.slot));
    }
    from_ += bytes;
    left_ -= bytes;
    at_.next(n_);
    if (left_ > 0) return;
    groups_.next();
    open();
  }

 private:
  __device__ __forceinline__ void open() {
    if (groups_.done()) return;
    int part;
    const int group = groups_.place(part);
    const MatmulPart& of = p_.parts[part];
    left_ = of.n_tiles * of.tile_bytes;
    stage_bytes_ = p_.n_lanes * of.tile_bytes;
    from_ = of.data + static_cast<int64_t>(group) * left_;
  }

  const MatmulParams& p_;
  std::byte* shared_;
  const OneShared& place_;
  OneGroups groups_;
  int first_, n_, left_ = 0, stage_bytes_ = 0;  // left_: bytes of the row group
  const std::byte* from_ = nullptr;
  OneRingPlace at_;
};

// The warp that copies.
class OneCopier {
 public:
  __device__ OneCopier(const MatmulParams& p, std::byte* shared, const OneShared& place)
      : p_(p), shared_(shared), place_(place), a_(p, shared, place, 0), b_(p, shared, place, 1) {}

  __device__ void init_barriers() const {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < p_.n_stages; ++i) {
        cuda::warp_barrier_init(one_barrier(shared_, 0, i), p_.n_lanes);
        cuda::copy_barrier_init(one_barrier(shared_, place_.full, i));
      }
      for (int i = 0; i < 2 * kOneSets; ++i) {
        cuda::warp_barrier_init(one_barrier(shared_, place_.sums_full, i),
                                kOneSumLanes * p_.n_lanes);
        cuda::warp_barrier_init(one_barrier(shared_, place_.sums_empty, i), kMmaRows);
      }
      for (int i = 0; i < kOneActBarriers; ++i) {
        cuda::copy_barrier_init(one_barrier(shared_, place_.given, i));
      }
    }
    __syncwarp();
  }

  // The stages that fit into empty rings.
  template <bool kCopies>
  __device__ __forceinline__ void pass_first() {
#pragma unroll 1
    for (int i = 0; i < place_.n_stages[0]; ++i) {
      if (!a_.done()) a_.template pass<kCopies>();
      if (!b_.done() && i < place_.n_stages[1]) b_.template pass<kCopies>();
    }
  }

  __device__ void run() {
    while (!a_.done()) {  // the first set has as many row groups as the second, or one more
      a_.wait();
      a_.pass<true>();
      if (b_.done()) continue;
      b_.wait();
      b_.pass<true>();
    }
    while (!b_.done()) {  // more tiles to a row group
      b_.wait();
      b_.pass<true>();
    }
  }

 private:
  const MatmulParams& p_;
  std::byte* shared_;
  const OneShared& place_;
  OneCopies a_, b_;
};

// Codes that another kernel has made; by a warp.
__device__ __forceinline__ void copy_given(const MatmulParams& p, std::byte* shared,
                                           const OneShared& place) {
  constexpr int kInfo = int{sizeof(ActInfo)};
  const int n = padded_cols(p) / kMmaBlock, first = min(n, place.first_tiles * kMmaTileBlocks);
  const auto* from = reinterpret_cast<const std::byte*>(p.in);
  const int info = place.info - place.acts;
  const int at[4] = {0, info, first * kMmaBlock, info + first * kInfo};
  const int bytes[4] = {first * kMmaBlock, first * kInfo, (n - first) * kMmaBlock,
                        (n - first) * kInfo};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::byte* const source[] = {from + at[i]};
    if (bytes[i] > 0) {
      cuda::warp_copy<false>(shared + place.acts + at[i], source, bytes[i],
                             one_barrier(shared, place.given, i));
    }
  }
}

// The warp that finishes: lanes 0 to 15 rows of the first set's row group, the others those of the
// second's.
template <class Op>
__device__ __forceinline__ void finish_groups(const MatmulParams& p, const Op& op,
                                              std::byte* shared, const OneShared& place) {
  const int lane = threadIdx.x % 32, set = lane / kMmaRows, in_group = lane % kMmaRows;
  OneGroups groups(p, place.items, set);
  float kept = 0.0f;  // of a block's row `lane`
  for (int count = 0;; ++count) {
    const bool own = !groups.done();
    if (!__shfl_sync(0xffffffffu, static_cast<int>(own), 0)) break;
    int part = 0;
    const int group = own ? groups.place(part) : 0;
    const int row = group * kMmaRows + in_group, buffer = count % 2;
    const bool stores = own && row < p.parts[part].rows;
    [[maybe_unused]] const auto before = [&] {
      if constexpr (ReadsFirst<Op>) {
        return op.read(part, stores ? row : 0, 0);
      } else {
        return 0;
      }
    }();
    float total = 0.0f;
    if (own) {
      cuda::barrier_wait(one_barrier(shared, place.sums_full, 2 * set + buffer), count / 2 % 2);
      const float* of = reinterpret_cast<const float*>(shared + place.sums) +
                        (2 * set + buffer) * p.n_lanes * kMmaRows + in_group;
      float x[kMatmulMaxLanes];
#pragma unroll
      for (int i = 0; i < kMatmulMaxLanes; ++i) x[i] = i < p.n_lanes ? of[i * kMmaRows] : 0.0f;
      total = x[0];
#pragma unroll
      for (int i = 1; i < kMatmulMaxLanes; ++i) {
        if (i < p.n_lanes) total += x[i];
      }
      cuda::lanes_arrive(one_barrier(shared, place.sums_empty, 2 * set + buffer));
    }
    __syncwarp();
    if constexpr (TakesBlocks<Op>) {
      const float other = __shfl_xor_sync(0xffffffffu, total, kMmaRows);
      const float both[2] = {set == 0 ? total : other, set == 0 ? other : total};
      const float value = op.value(both);
      const int item = groups.item();
      if (set == (item & 1)) kept = value;
      if ((item & 1) == 1) op.store(item / 2, kept);
    } else if constexpr (ReadsFirst<Op>) {
      op.write(part, row, 0, before, &total, stores);
    } else if (p.bundle == 2) {
      const float other = __shfl_xor_sync(0xffffffffu, total, kMmaRows);
      const float both[2] = {total, other};
      if (stores && set == 0) op(1, row, 0, both);
    } else if (stores) {
      op(part, row, 0, &total);
    }
    if constexpr (HasUnitsDone<Op>) {
      for (int i = 0; i < kOneSets; ++i) {
        const int from = i * kMmaRows;
        if (!__shfl_sync(0xffffffffu, static_cast<int>(own), from)) continue;
        const int of_part = __shfl_sync(0xffffffffu, part, from);
        int first = __shfl_sync(0xffffffffu, group, from);
        for (int k = 0; k < of_part; ++k) first += p.parts[k].n_groups;
        op.units_done(first, 1, shared + place.scratch);
      }
    }
    if (own) groups.next();
    __syncwarp();
  }
}

// A warp that multiplies.
struct OneStream {
  const MatmulParams& p;
  std::byte* shared;
  const OneShared& place;
  int set, lane;  // of the set
  OneRingPlace at;
  int count = 0;        // of row groups
  int known_tiles = 0;  // whose given codes are there

  __device__ OneStream(const MatmulParams& params, std::byte* of, const OneShared& places, int warp)
      : p(params),
        shared(of),
        place(places),
        set(warp >= params.n_lanes ? 1 : 0),
        lane(warp - set * params.n_lanes) {}

  // Until the given codes of a tile are there.
  __device__ __forceinline__ void await_given(int tile) {
    const int from = tile < place.first_tiles ? 0 : 2;
    for (int i = 0; i < 2; ++i) cuda::barrier_wait(one_barrier(shared, place.given, from + i), 0);
    known_tiles = from == 0 ? place.first_tiles : 1 << 30;
  }

  // Takes row groups of a type.
  template <DType kType>
  __device__ __forceinline__ void run(int n_groups) {
    using Format = MmaFormat<kType>;
    constexpr bool kReal = Format::kKind == MmaKind::real;
    // Or the compiler works out each format's places before it knows the format.
    const int thread_lane = cuda::opaque(threadIdx.x % 32), first_tile = cuda::opaque(lane);
    const int own_set = cuda::opaque(set);
    const int n_tiles = (cuda::opaque(p.cols) + Format::kTileCols - 1) / Format::kTileCols;
    const int n = own_set == 0 ? place.n_stages[0] : place.n_stages[1];
    const int first = own_set == 0 ? 0 : place.n_stages[0];
    const int tiles = place.rings + first * place.stage_bytes + first_tile * Format::kTileBytes;
#pragma unroll 1
    for (; n_groups > 0; --n_groups) {
      MmaSums<1> acc = {};
#pragma unroll 1
      for (int tile = first_tile; tile < n_tiles + first_tile; tile += p.n_lanes) {
        if (p.in_codes && tile >= known_tiles && tile < n_tiles) await_given(tile);
        cuda::barrier_wait(one_barrier(shared, place.full, first + at.slot), at.parity);
        const std::byte* from = shared + tiles + at.slot * place.stage_bytes;
        if (tile < n_tiles) {
          if constexpr (kReal) {
            fold_floats<kType, 1>(acc, from, acts_at(p, shared + place.acts, 1), {0, 1},
                                  tile * (Format::kTileCols / 16));
          } else {
            float sums[2];
            tile_of_one<Format>(sums, from,
                                shared_acts(shared + place.acts, shared + place.info,
                                            tile * kMmaTileBlocks, thread_lane),
                                thread_lane);
            acc[0][0][0] += sums[0];
            acc[0][1][0] += sums[1];
          }
        }
        __syncwarp();
        if (thread_lane == 0) cuda::lanes_arrive(one_barrier(shared, 0, first + at.slot));
        at.next(n);
      }
      // Leaves the sums of rows g and g + 8.
      const int buffer = 2 * own_set + (count & 1);
      if (thread_lane % 4 == 0) {
        if (count >= 2) {
          cuda::barrier_wait(one_barrier(shared, place.sums_empty, buffer), (count / 2 - 1) & 1);
        }
        float* to = reinterpret_cast<float*>(shared + place.sums) +
                    (buffer * p.n_lanes + first_tile) * kMmaRows + thread_lane / 4;
        to[0] = acc[0][0][0];
        to[8] = acc[0][1][0];
        cuda::lanes_arrive(one_barrier(shared, place.sums_full, buffer));
      }
      __syncwarp();
      ++count;
    }
  }
};

// Makes the activations of products of codes alone, by all warps: a warp has 256 columns, a lane
// what it will multiply of one block. The values and their order are ActMaker's.
class OneActs16 {
 public:
  __device__ explicit OneActs16(const MatmulParams& p) : p_(p) {
    if (p.norm) norm_ = load(p.norm, first());
  }
  __device__ __forceinline__ void make(std::byte* acts, std::byte* info, float* shared,
                                       int barrier) const {
    const float* in = p_.in + static_cast<int64_t>(p_.in_row ? p_.in_row[0] : 0) * p_.cols;
    const Piece held = load(in, first());
    float scale = 1.0f;
    if (p_.norm) {
      float squares = add(0.0f, held);
#pragma unroll 1
      for (int at = first() + kStep; at < p_.cols; at += kStep) {
        squares = add(squares, load(in, at));
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, distance);
      }
      if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = squares;
      cuda::barrier_sync(barrier, kOneThreads);
      scale = norm_scale(p_, shared);
    }
    const int end = padded_cols(p_);
    if (first() < end) store(held, norm_, scale, first(), acts, info);
#pragma unroll 1
    for (int at = first() + kStep; at < end; at += kStep) {
      Piece norm = norm_;
      if (p_.norm) norm = load(p_.norm, at);
      store(load(in, at), norm, scale, at, acts, info);
    }
  }

 private:
  static constexpr int kStep = kOneWarps * kMmaTileCols;
  struct Piece {
    float4 x[2];
  };
  // The warp's first column of a tile; the lane has a block's columns 4t and 16 + 4t on.
  __device__ static int first() { return static_cast<int>(threadIdx.x / 32) * kMmaTileCols; }
  __device__ __forceinline__ Piece load(const float* row, int at) const {
    const int lane = threadIdx.x % 32, block = at + lane / 4 * kMmaBlock;
    if (block >= p_.cols) return {};
    const auto* from = reinterpret_cast<const float4*>(row + block) + lane % 4;
    return {{__ldcg(from), __ldcg(from + 4)}};
  }
  __device__ __forceinline__ static float add(float sum, const Piece& piece) {
#pragma unroll
    for (const float4& v : piece.x) sum = add_squares(sum, v);
    return sum;
  }
  __device__ __forceinline__ void store(const Piece& x, const Piece& norm, float scale, int at,
                                        std::byte* acts, std::byte* info) const {
    constexpr uint32_t kAll = 0xffffffffu;
    const int lane = threadIdx.x % 32, block = at / kMmaBlock + lane / 4;
    const auto times = [&](float v, float w) { return __fmul_rn(__fmul_rn(v, scale), w); };
    float4 v[2];
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      v[i] = p_.norm ? map4(x.x[i], norm.x[i], times) : x.x[i];
      bits = max(bits, max(max(magnitude_bits(v[i].x), magnitude_bits(v[i].y)),
                           max(magnitude_bits(v[i].z), magnitude_bits(v[i].w))));
    }
    bits = max(bits, __shfl_xor_sync(kAll, bits, 1));
    bits = max(bits, __shfl_xor_sync(kAll, bits, 2));
    const CodeScale of = CodeScale::of(__uint_as_float(bits));
    Words2 words;
    int sums[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = __byte_perm(of.code(v[i].x), of.code(v[i].y), 0x0040);
      const uint32_t high = __byte_perm(of.code(v[i].z), of.code(v[i].w), 0x0040);
      words.x[i] = of.finite ? __byte_perm(low, high, 0x5410) : 0u;
      sums[i] = __dp4a(static_cast<int>(words.x[i]), 0x01010101, 0);
      sums[i] += __shfl_xor_sync(kAll, sums[i], 1);
      sums[i] += __shfl_xor_sync(kAll, sums[i], 2);
    }
    *reinterpret_cast<Words2*>(acts + block * kMmaBlock + lane % 4 * 8) = words;
    if (lane % 4 == 0) {
      *(reinterpret_cast<ActInfo*>(info) + block) = of.info(sums[0], sums[1]);
    }
  }

  const MatmulParams& p_;
  Piece norm_ = {};
};

// Those of products with 16-bit weights, by the first kActWarps warps; apart, as they are long.
__device__ __noinline__ void make_real_acts(const MatmulParams& p, std::byte* acts, float* sums) {
  ActMaker(p).make(0, acts, 0, 1, padded_cols(p), sums);
}

template <class Op>
__global__ void __launch_bounds__(kOneThreads, 2)
    matmul_one_kernel(const __grid_constant__ MatmulParams p,
                      const __grid_constant__ OneShared place, const __grid_constant__ Op op) {
  constexpr int kAll = 2, kSums = 3;  // barriers of all threads
  constexpr int kBits = 21;           // of a number of row groups
  alignas(16) __shared__ float norm_sums[kActSums];
  auto* shared = cuda::dynamic_shared<std::byte>();
  const int warp = threadIdx.x / 32;
  const bool streams = warp < kOneSets * p.n_lanes;
  uint64_t n_groups = 0;
  if (warp == kOneStreams) {
    OneCopier copier(p, shared, place);
    copier.init_barriers();
    copier.template pass_first<true>();
    cuda::pdl_launch_dependents();
  } else if (streams) {
#pragma unroll 1
    for (int i = (p.bundle == 2 ? 1 : p.n_parts) - 1; i >= 0; --i) {
      n_groups =
          n_groups << kBits | static_cast<uint64_t>(own_groups(p, i, warp >= p.n_lanes ? 1 : 0));
    }
  }
  const OneActs16 acts(p);
  cuda::pdl_wait();
  if (p.in_codes) {
    if (warp == kOneStreams) copy_given(p, shared, place);
  } else if (!p.any_f16 && !p.any_bf16) {
    acts.make(shared + place.acts, shared + place.info, norm_sums, kSums);
  } else if (warp < kActWarps) {
    make_real_acts(p, shared + place.acts, norm_sums);
  }
  cuda::barrier_sync(kAll, kOneThreads);
  if (warp == kOneStreams) {
    OneCopier copier(p, shared, place);
    copier.template pass_first<false>();
    copier.run();
  } else if (warp > kOneStreams) {
    visit_op(op, [&](const auto& of) { finish_groups(p, of, shared, place); });
  } else if (streams) {
    OneStream stream(p, shared, place, warp);
#pragma unroll 1
    for (int part = 0; n_groups != 0; ++part, n_groups >>= kBits) {
      const int n = static_cast<int>(n_groups & ((1u << kBits) - 1));
      if (n == 0) continue;
      visit_mma_format(p.parts[part].type,
                       [&](auto constant) { stream.template run<decltype(constant)::value>(n); });
    }
  }
}

}  // namespace fathom::quant

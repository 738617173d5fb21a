// SPDX-License-Identifier: Apache-2.0
// Attention over the tiled cache in one launch: decode, and the steps of many rows that
// attn_flash_kernel.cuh does not take. The reduction tree knows token
// indices only: leaves of 32 tokens fold in order into runs of 128, four of these into a node of
// 512, and so on up to 8,192, all of these into the result, whoever computes which part
// (attn_work_kernel.cuh). A warp takes leaves alone, without a barrier, and folds its run; the
// block folds the runs of its streams into the state of a unit. The blocks of a cluster fold their
// states through each other's shared memory; what crosses clusters goes through scratch, where the
// last to come folds. Of few long sequences a block takes many units and leaves their states in
// scratch, without a fence, which would wait for all that is on its way; at the end the last
// cluster of a head to come folds them, each block its share.
// A column is a query; those of rows of one sequence that share a KV head share a pass. The bits of
// a column depend on its query and tokens only: masked tokens and empty states change nothing, and
// no contraction is left to the compiler.
// The step's positions, slots and pages are read before the dependency wait: kernels that come
// directly before this one in a step write queries and cache only.
#pragma once

#include "kernels/attn/attn_leaf_kernel.cuh"
#include "kernels/common/dynamic_shared.cuh"

namespace fathom::cuda {

template <class L>
class AttnBlock {
  using OwnState = AttnState<L::kOwnChunks>;

 public:
  __device__ AttnBlock(const AttnParams& params, std::byte* shared)
      : at_{params, shared}, work_(at_), feed_(at_, work_), leaf_(at_), levels_(at_) {}

  __device__ void run() {
    AttnCursor now = work_.first();
    feed_.start_early(now);
    const bool folds = work_.meeting() == AttnMeeting::memory && cluster_units() > 0;
    if (!now.valid && !folds && static_cast<int>(blockIdx.x) >= at_.params.n_rows)
      return;  // room for the next kernel
    if (work_.meeting() == AttnMeeting::cluster) {
      if (threadIdx.x == 0) meeting_init(meeting());
      cluster_arrive_relaxed();
      has_arrived_ = true;
    }
    start_head(now);
    pdl_wait();
    pdl_launch_dependents();
    fetch_query();
    feed_.start_late();
    int slot = 0;
    while (now.valid) {
      leaf_.make_query();
      levels_.clear();
      do {
        take_leaf(now, slot);
      } while (now.valid && !now.starts_head);
      if (!now.valid) break;
      start_head(now);
      fetch_query();
    }
    attn_copies_wait<0>();
    if (folds) fold_heads();
    zero_padded_rows();
    if (has_arrived_) cluster_wait();  // the others have met too
  }

 private:
  // And goes on to the stream's next one.
  __device__ __forceinline__ void take_leaf(AttnCursor& now, int& slot) {
    const int token = work_.token(now);
    const bool live = is_active_ && token < now.end;
    AttnState<L::kChunks> leaf;
    arrived();
    if (live) leaf_.scores(at_.slot(at_.stream, slot), token);
    at_.stream_sync();
    feed_.template refill<false>(slot);
    slot = next(slot);
    if (live) leaf_.soften(leaf);
    arrived();
    if (now.step == 0) run_.clear();
    if (live) leaf_.add_outputs(at_.slot(at_.stream, slot), token, leaf, run_);
    if (work_.ends_round(now)) {
      end_round(now, slot);
    } else {
      at_.stream_sync();
      feed_.template refill<true>(slot);
    }
    slot = next(slot);
    work_.advance(now);
  }
  __device__ static int next(int slot) { return slot + 1 == L::kSlots ? 0 : slot + 1; }
  // The oldest copy of the stream's ring is there.
  __device__ void arrived() const {
    attn_copies_wait<L::kSlots - 1>();
    at_.stream_sync();
  }

  __device__ void zero_padded_rows() const {
    const int width = at_.params.n_heads * L::kDims;
    for (int row = static_cast<int>(blockIdx.x); row < at_.params.n_rows;
         row += static_cast<int>(gridDim.x)) {
      if (at_.params.pos[row] >= 0) continue;
      float* out = at_.params.out + int64_t{row} * width;
      for (int i = static_cast<int>(threadIdx.x); i < width; i += L::kThreads) out[i] = 0.0f;
    }
  }

  __device__ void start_head(const AttnCursor& c) {
    is_active_ = is_inside_ = false;
    head_ = last_token_ = 0;
    if (c.len == 0) return;
    const AttnEntry& e = work_.entry(c.entry);
    const int column = at_.column(), n_columns = e.n_rows * at_.params.group;
    is_active_ = column - static_cast<int>(at_.row) < n_columns;
    is_inside_ = column < n_columns;
    head_ = head_of(c.entry, c.kv_head, column);
    if (is_inside_) last_token_ = at_.params.pos[e.row + column / at_.params.group];
  }
  // Of a column, counted through the rows.
  __device__ int head_of(int entry, int kv_head, int column) const {
    const int group = at_.params.group, row = work_.entry(entry).row + column / group;
    return row * at_.params.n_heads + kv_head * group + column % group;
  }
  __device__ void fetch_query() {
    leaf_.fetch_query(at_.params.q + int64_t{head_} * L::kDims, is_inside_, last_token_);
  }

  // The state of the round, and of the unit with its last; V's slot was used and is filled again.
  __device__ void end_round(const AttnCursor& now, int slot) {
    OwnState own;
    fold_streams(slot, own);
    feed_.template refill<true>(slot);
    const bool ends_unit = work_.ends_unit(now);
    if (!ends_unit || now.round != work_.first_token(now))
      levels_.climb(own, now.round + work_.round_tokens(), ends_unit);
    if (!ends_unit) return;
    if (work_.meeting() == AttnMeeting::memory) {
      leave(now, own);
    } else if (work_.meeting() == AttnMeeting::cluster) {
      meet(now, own);
    } else {
      store_outputs(own);
    }
  }

  // The warps of several streams exchange their runs, each folds its chunks of all.
  __device__ void fold_streams(int slot, OwnState& own) const {
    if constexpr (L::kStreams == 1) {
      __syncthreads();
      own = run_;
    } else {
      __syncwarp();
      store_state(at_.slot(at_.stream, slot), run_);
      __syncthreads();
      own.clear();
#pragma unroll
      for (int stream = 0; stream < L::kStreams; ++stream) {
        const AttnStored<L> from{at_.shared + at_.slot(stream, slot)};
        OwnState x;
        x.clear();
        x.max = from.max(at_.column());
        x.sum = from.sum(at_.column());
#pragma unroll
        for (int i = 0; i < L::kOwnChunks; ++i) {
          if (at_.own_chunk(i) < L::kChunks) x.out[i] = from.out(at_.own_position(i));
        }
        own.fold(x);
      }
      __syncthreads();
    }
  }
  __device__ void store_state(unsigned to, const AttnState<L::kChunks>& x) const {
    const AttnStored<L> stored{at_.shared + to};
#pragma unroll
    for (int chunk = 0; chunk < L::kChunks; ++chunk) {
      stored.out((static_cast<int>(at_.tile) * L::kChunks + chunk) * 32 +
                 static_cast<int>(at_.lane)) = x.out[chunk];
    }
    if (at_.quad != 0) return;
    stored.max(at_.column()) = x.max;
    stored.sum(at_.column()) = x.sum;
  }

  // The team of a unit, the blocks of the cluster with units of the same head, share the positions:
  // each gets its share of all states and folds it. If there are more teams, the last of them to
  // come folds the share of their states.
  __device__ void meet(const AttnCursor& now, const OwnState& own) {
    const int team = work_.team(), rank = static_cast<int>(cluster_rank()) % team;
    const int n_units = now.len > 0 ? work_.n_units(now.len) : 0;
    const int first_unit = now.unit - rank, n_live = min(team, n_units - first_unit);
    const int n_teams = (n_units + team - 1) / team, share = L::kPositions / team;
    const int bytes = AttnShares::bytes(share);
    exchange(own, rank, team, n_live);
    const AttnShares received{at_.shared + L::kExchange, share, bytes};
    const int size = work_.blocks_of_cluster(), tokens = 1 << work_.unit_shift();
    // Of the head's teams, this block's share.
    auto* states = reinterpret_cast<std::byte*>(at_.params.states) +
                   int64_t{(now.item - now.unit) / size} * AttnShares::bytes(L::kPositions) +
                   rank * n_teams * bytes;
    const AttnShares of_teams{states, share, bytes};
    if (n_live > 0) {
      each_output(share, [&](int position, int component) {
        const AttnOutput x = attn_fold(received, n_live, tokens, position, component);
        if (n_teams == 1) {
          store_output(now.entry, now.kv_head, rank * share + position, component, x);
          return;
        }
        const AttnShares to = of_teams.state(first_unit / team);
        reinterpret_cast<float*>(to.data)[position * 4 + component] = x.out;
        if (component == 0) {
          reinterpret_cast<float2*>(to.data + share * 16)[position] =
              make_float2(__int_as_float(x.max), x.sum);
        }
      });
    }
    // This block has read what it got; after the last unit that only keeps it from ending before.
    if (work_.is_last(now)) {
      cluster_arrive_relaxed();
    } else {
      cluster_arrive();
    }
    has_arrived_ = true;
    if (n_teams <= 1 || n_live <= 0) return;
    const int head = now.entry * at_.params.n_kv_heads + now.kv_head;
    int* last = reinterpret_cast<int*>(at_.shared + L::kScan);
    __syncthreads();  // all have stored
    if (threadIdx.x == 0) *last = attn_is_last(at_.params.counters + head * team + rank, n_teams);
    __syncthreads();
    if (*last == 0) return;
    each_output(share, [&](int position, int component) {
      store_output(now.entry, now.kv_head, rank * share + position, component,
                   attn_fold(of_teams, n_teams, tokens * team, position, component));
    });
  }

  // The state of a unit waits in device memory, a block's share of all units side by side.
  __device__ void leave(const AttnCursor& now, const OwnState& own) const {
    const int size = work_.blocks_of_cluster(), share = L::kPositions / size;
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) >= L::kChunks) break;
      const int position = at_.own_position(i), to = position * size / L::kPositions;
      left(to, share).state(now.item).store(position - to * share, own.out[i], own.max, own.sum);
    }
  }
  // By unit.
  __device__ AttnShares left(int rank, int share) const {
    const int bytes = AttnShares::bytes(share);
    auto* states = reinterpret_cast<std::byte*>(at_.params.states);
    return {states + int64_t{rank} * work_.n_all_units() * bytes, share, bytes};
  }

  __device__ int first_of_cluster() const {
    return static_cast<int>(blockIdx.x) - static_cast<int>(cluster_rank());
  }
  // Units that the blocks of the cluster take.
  __device__ int cluster_units() const {
    const int first = first_of_cluster();
    return work_.first_unit_of(first + work_.blocks_of_cluster()) - work_.first_unit_of(first);
  }

  // After the last unit. The heads of which the cluster took units; one that it shares with
  // others, its first or its last, is folded by the last of them to come.
  __device__ void fold_heads() {
    const int size = work_.blocks_of_cluster();
    if (size > 1) cluster_arrive();
    const int begin = work_.first_unit_of(first_of_cluster());
    const int end = work_.first_unit_of(first_of_cluster() + size);
    const AttnHead first = work_.head_at(begin), last = work_.head_at(end - 1);
    if (size > 1) cluster_wait();
    __syncthreads();
    int* folds = reinterpret_cast<int*>(at_.shared + L::kScan);
    if (at_.lane == 0 && at_.warp < 2) {
      const bool is_other = at_.warp == 1;
      AttnHead head = first;
      if (is_other) head = last;
      folds[at_.warp] = (is_other && first.first == last.first) || is_last(head);
    }
    __syncthreads();
    const bool folds_first = folds[0] != 0, folds_last = folds[1] != 0;
    for (AttnHead head = first;; head = work_.next(head)) {
      const bool is_first = head.first == first.first, is_end = head.first == last.first;
      if ((!is_first || folds_first) && (!is_end || folds_last)) fold_head(head);
      if (is_end) break;
    }
  }
  // Whether no other cluster's share of the head is missing. By one thread.
  __device__ bool is_last(const AttnHead& head) const {
    const int size = work_.blocks_of_cluster();
    const int n =
        work_.block_of(head.first + head.n - 1) / size - work_.block_of(head.first) / size;
    if (n == 0) return true;
    const int number = head.entry * at_.params.n_kv_heads + head.kv_head;
    return attn_is_last(at_.params.counters + number * size + static_cast<int>(cluster_rank()),
                        n + 1);
  }

  // The block's share of a head: from the states of its units to nodes of 2,048 tokens, each by a
  // thread for four outputs, then all of these; in shared memory, if shares are small: all at once
  // where they have room, the nodes in the place of the states, or as many at a time as fit behind
  // the nodes.
  __device__ void fold_head(const AttnHead& head) {
    const int rank = static_cast<int>(cluster_rank()), size = work_.blocks_of_cluster();
    const int share = L::kPositions / size, n = head.n, n_middles = (n + 3) / 4;
    const AttnShares states = left(rank, share).state(head.first);
    AttnShares middles{states.data, share, 4 * states.stride};
    int n_fetched = n;
    std::byte* fetched = nullptr;
    if (size > 1 && n * states.stride <= L::kScan) {
      middles.data = fetched = at_.shared;
    } else if (size > 1) {
      const int behind = n_middles * states.stride, fit = (L::kScan - behind) / states.stride / 4;
      if (fit > 0) {
        middles = {at_.shared, share, states.stride};
        fetched = at_.shared + behind;
        n_fetched = fit * 4;
      }
    }
#pragma unroll 1
    for (int first = 0; first < n; first += n_fetched) {
      const int n_here = min(n_fetched, n - first);
      AttnShares here = states.state(first);
      if (fetched) here = fetch(fetched, here, n_here);
      each_middle(share, (n_here + 3) / 4, [&](int middle, int position) {
        AttnState<1> sum;
        sum.clear();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (middle * 4 + i < n_here) sum.fold(here.state(middle * 4 + i).load(position));
        }
        middles.state(first / 4 + middle).store(position, sum.out[0], sum.max, sum.sum);
      });
      __syncthreads();
    }
    each_output(share, [&](int position, int component) {
      store_output(head.entry, head.kv_head, rank * share + position, component,
                   attn_fold(middles, n_middles, 4 * kAttnNodeTokens, position, component));
    });
    __syncthreads();
  }
  // n states come to shared memory.
  __device__ AttnShares fetch(std::byte* to, const AttnShares& from, int n) const {
    const unsigned address = at_.address + static_cast<unsigned>(to - at_.shared);
#pragma unroll 2
    for (int at = static_cast<int>(threadIdx.x) * 16; at < n * from.stride; at += L::kThreads * 16)
      attn_copy_async(address + at, from.data + at);
    attn_copies_commit();
    attn_copies_wait<0>();
    __syncthreads();
    return {to, from.n_positions, from.stride};
  }
  template <class Visit>
  __device__ static void each_middle(int share, int n, const Visit& visit) {
    const int thread = static_cast<int>(threadIdx.x), lanes = min(share, L::kThreads);
    const int groups = L::kThreads / lanes;
    if (thread >= groups * lanes) return;
#pragma unroll 1
    for (int middle = thread / lanes; middle < n; middle += groups) {
#pragma unroll 1
      for (int position = thread % lanes; position < share; position += lanes)
        visit(middle, position);
    }
  }

  // The outputs of a share.
  template <class Visit>
  __device__ static void each_output(int share, const Visit& visit) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < share * 4; i += L::kThreads) {
      visit(i / 4, i % 4);
    }
  }

  __device__ unsigned meeting() const { return at_.address + L::kMeeting; }
  // Each block of the team gets its share of this one's state, and of all that have tokens.
  __device__ void exchange(const OwnState& own, int rank, int team, int n_live) {
    if (has_arrived_) cluster_wait();
    has_arrived_ = false;
    if (n_live <= 0) return;
    const int share = L::kPositions / team;
    const int first_rank = static_cast<int>(cluster_rank()) - rank;
    const int bytes = AttnShares::bytes(share);
    if (threadIdx.x == 0) meeting_expect(meeting(), n_live * bytes);
    const unsigned to_share = at_.address + L::kExchange + rank * bytes;
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) >= L::kChunks || rank >= n_live) break;
      const int position = at_.own_position(i), to = position / share;
      const unsigned receiver = static_cast<unsigned>(first_rank + to);
      const unsigned data = cluster_address(to_share, receiver);
      const unsigned barrier = cluster_address(meeting(), receiver);
      const int of_share = position - to * share;
      meeting_send(data + of_share * 16, barrier, own.out[i]);
      meeting_send(data + share * 16 + of_share * 8, barrier,
                   make_float2(__int_as_float(own.max), own.sum));
    }
    meeting_wait(meeting(), n_meetings_++ & 1);
  }

  __device__ void store_outputs(const OwnState& own) const {
    if (!is_inside_) return;
    const float factor = __frcp_rn(own.sum);
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) >= L::kChunks) break;
      float* to = at_.params.out + int64_t{head_} * L::kDims + at_.own_chunk(i) * 16;
      const float4& x = own.out[i];
      AttnLeaf<L>::store(to, static_cast<int>(at_.quad),
                         make_float4(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor),
                                     __fmul_rn(x.z, factor), __fmul_rn(x.w, factor)));
    }
  }
  __device__ void store_output(int entry, int kv_head, int position, int component,
                               const AttnOutput& x) const {
    const int tile = position / (L::kChunks * 32);
    const int column = tile * kAttnKernelColumns + position % 32 / 4;
    if (column >= work_.entry(entry).n_rows * at_.params.group) return;
    const int dim = position / 32 % L::kChunks * 16 + AttnLeaf<L>::dim(position % 4, component);
    at_.params.out[int64_t{head_of(entry, kv_head, column)} * L::kDims + dim] =
        __fmul_rn(x.out, __frcp_rn(x.sum));
  }

  const AttnThread<L> at_;
  AttnWork<L> work_;
  AttnFeed<L> feed_;
  AttnLeaf<L> leaf_;
  AttnLevels<L> levels_;
  AttnState<L::kChunks> run_;
  unsigned n_meetings_ = 0;
  bool has_arrived_ = false;    // the cluster's blocks may not have begun, or may still be reading
  bool is_active_, is_inside_;  // the warp's tile, the thread's column
  int head_, last_token_;       // of the column; heads are counted through the rows
};

template <KvFormat kFormat, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(AttnLayout<kFormat, kHeadDim, kTiles>::kThreads,
                                  AttnLayout<kFormat, kHeadDim, kTiles>::kBlocks)
    attn_kernel(const __grid_constant__ AttnParams params) {
  AttnBlock<AttnLayout<kFormat, kHeadDim, kTiles>>(params, dynamic_shared<std::byte>()).run();
}

}  // namespace fathom::cuda

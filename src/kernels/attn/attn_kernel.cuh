// SPDX-License-Identifier: Apache-2.0
// Attention over the tiled cache in one launch: decode, and the steps of many rows that
// attn_flash_kernel.cuh does not take. The reduction tree knows token
// indices only: leaves of 32 tokens fold in order into runs of 128, four of these into a node of
// 512, and so on up to 8,192, all of these into the result, whoever computes which part
// (attn_work_kernel.cuh). A warp takes leaves alone, without a barrier, and folds its run; the
// block folds the runs of its streams; the blocks of a cluster fold their states through each
// other's shared memory; what crosses clusters goes through scratch, where the last to come folds.
// A column is a query; those of rows of one sequence that share a KV head share a pass. The bits of
// a column depend on its query and tokens only: masked tokens and empty states change nothing, and
// no contraction is left to the compiler.
// The step's positions, slots and pages are read before the dependency wait: kernels that come
// directly before this one in a step write queries and cache only.
#pragma once

#include "kernels/attn/attn_leaf_kernel.cuh"

namespace fathom::cuda {

template <class L>
class AttnBlock {
  using OwnState = AttnState<L::kOwnChunks>;

 public:
  __device__ AttnBlock(const AttnParams& params, std::byte* shared)
      : at_{params, shared}, work_(at_), feed_(at_, work_), leaf_(at_), levels_(at_) {}

  __device__ void run() {
    feed_.start_early();
    AttnCursor now = work_.first(static_cast<int>(blockIdx.x));
    if (!now.valid && static_cast<int>(blockIdx.x) >= at_.params.n_rows)
      return;  // room for the next kernel
    if (work_.blocks_of_cluster() > 1) {
      cluster_arrive_relaxed();
      has_arrived_ = true;
    }
    start_item(now);
    pdl_wait();
    pdl_launch_dependents();
    fetch_query();
    feed_.start_late();
    int slot = 0;
    while (now.valid) {
      if (now.starts_item) {
        leaf_.make_query();
        levels_.clear();
      }
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
      if (live) {
        leaf_.outputs(at_.slot(at_.stream, slot), token, leaf);
        run_.fold(leaf);
      }
      if (work_.ends_round(now)) {
        end_round(now, slot);
      } else {
        at_.stream_sync();
        feed_.template refill<true>(slot);
      }
      slot = next(slot);
      work_.advance(now);
      if (now.starts_item) {
        start_item(now);
        fetch_query();
      }
    }
    attn_copies_wait<0>();
    zero_padded_rows();
    if (has_arrived_) cluster_wait();  // the others have read this block's state
  }

 private:
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

  __device__ void start_item(const AttnCursor& c) {
    is_active_ = is_inside_ = false;
    head_ = last_token_ = 0;
    if (c.len == 0) return;
    const AttnEntry& e = work_.entry(c.entry);
    const int column = at_.column(), n_columns = e.n_rows * at_.params.group;
    is_active_ = column - static_cast<int>(at_.row) < n_columns;
    is_inside_ = column < n_columns;
    head_ = head_of(c, column);
    if (is_inside_) last_token_ = at_.params.pos[e.row + column / at_.params.group];
  }
  // Of a column, counted through the rows.
  __device__ int head_of(const AttnCursor& c, int column) const {
    const int group = at_.params.group, row = work_.entry(c.entry).row + column / group;
    return row * at_.params.n_heads + c.kv_head * group + column % group;
  }
  __device__ void fetch_query() {
    leaf_.fetch_query(at_.params.q + int64_t{head_} * L::kDims, is_inside_, last_token_);
  }

  // The state of the round, and of the item with its last; V's slot was used and is filled again.
  __device__ void end_round(const AttnCursor& now, int slot) {
    OwnState own;
    fold_streams(slot, own);
    feed_.template refill<true>(slot);
    const bool ends_item = work_.ends_item(now);
    if (!ends_item || now.round != now.unit << work_.unit_shift())
      levels_.climb(own, now.round + work_.round_tokens(), ends_item);
    if (ends_item) deliver(now, own);
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

  // The state of an item: the result, or a part. Its team, the blocks of the cluster with items of
  // the same head, share the positions: each gets its share of all states and folds it. If there
  // are more teams, the last of them to come folds the share of their states.
  __device__ void deliver(const AttnCursor& now, const OwnState& own) {
    if (work_.group() == 1) {
      store_outputs(own);
      return;
    }
    const int team = work_.team(), rank = static_cast<int>(cluster_rank()) % team;
    const int n_units = now.len > 0 ? work_.n_units(now.len) : 0;
    const int first_unit = now.unit - rank, n_live = min(team, n_units - first_unit);
    const int n_teams = (n_units + team - 1) / team, share = L::kPositions / team;
    exchange(own, rank, team);
    const AttnShares received{at_.shared + L::kExchange, share};
    const int size = work_.blocks_of_cluster(), tokens = 1 << work_.unit_shift();
    // Of the head's teams, this block's share.
    auto* states = reinterpret_cast<std::byte*>(at_.params.states) +
                   int64_t{(now.item - now.unit) / size} * AttnShares::bytes(L::kPositions) +
                   rank * n_teams * AttnShares::bytes(share);
    const AttnShares of_teams{states, share};
    if (n_live > 0) {
      each_output(share, [&](int position, int component) {
        const AttnOutput x = attn_fold(received, n_live, tokens, position, component);
        if (n_teams == 1) {
          store_output(now, rank * share + position, component, x);
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
    end_exchange();
    if (n_teams <= 1 || n_live <= 0) return;
    const int head = now.entry * at_.params.n_kv_heads + now.kv_head;
    if (!is_last(at_.params.counters + head * team + rank, n_teams)) return;
    each_output(share, [&](int position, int component) {
      store_output(now, rank * share + position, component,
                   attn_fold(of_teams, n_teams, tokens * team, position, component));
    });
  }

  // The outputs of a share.
  template <class Visit>
  __device__ static void each_output(int share, const Visit& visit) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < share * 4; i += L::kThreads) {
      visit(i / 4, i % 4);
    }
  }

  // Each block of the team gets its share of this one's state.
  __device__ void exchange(const OwnState& own, int rank, int team) {
    const bool alone = work_.blocks_of_cluster() == 1;
    if (has_arrived_) cluster_wait();
    if (alone) __syncthreads();
    const int share = L::kPositions / team;
    const int first_rank = static_cast<int>(cluster_rank()) - rank;
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) >= L::kChunks) break;
      const int position = at_.own_position(i), to = position / share;
      std::byte* data = at_.shared + L::kExchange + rank * AttnShares::bytes(share);
      if (!alone) data = cluster_map(data, static_cast<unsigned>(first_rank + to));
      AttnShares{data, share}.store(position - to * share, own.out[i], own.max, own.sum);
    }
    if (alone) {
      __syncthreads();
    } else {
      cluster_arrive();
      cluster_wait();
    }
  }
  // This block has read what it got.
  __device__ void end_exchange() {
    if (work_.blocks_of_cluster() == 1) return;
    cluster_arrive();
    has_arrived_ = true;
  }

  // Whether this block is the last of n to say so. REQUIRES: all threads call it.
  __device__ bool is_last(unsigned* counter, int n) const {
    int* flag = reinterpret_cast<int*>(at_.shared + L::kScan + L::kWarps * 8);
    __syncthreads();  // all have stored
    if (threadIdx.x == 0) *flag = attn_is_last(counter, n);
    __syncthreads();
    return *flag != 0;
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
  __device__ void store_output(const AttnCursor& c, int position, int component,
                               const AttnOutput& x) const {
    const int tile = position / (L::kChunks * 32);
    const int column = tile * kAttnKernelColumns + position % 32 / 4;
    if (column >= work_.entry(c.entry).n_rows * at_.params.group) return;
    const int dim = position / 32 % L::kChunks * 16 + AttnLeaf<L>::dim(position % 4, component);
    at_.params.out[int64_t{head_of(c, column)} * L::kDims + dim] =
        __fmul_rn(x.out, __frcp_rn(x.sum));
  }

  const AttnThread<L> at_;
  AttnWork<L> work_;
  AttnFeed<L> feed_;
  AttnLeaf<L> leaf_;
  AttnLevels<L> levels_;
  AttnState<L::kChunks> run_;
  bool has_arrived_ = false;    // the cluster's blocks may not have begun, or may still be reading
  bool is_active_, is_inside_;  // the warp's tile, the thread's column
  int head_, last_token_;       // of the column; heads are counted through the rows
};

template <KvFormat kFormat, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(AttnLayout<kFormat, kHeadDim, kTiles>::kThreads)
    attn_kernel(const __grid_constant__ AttnParams params) {
  extern __shared__ __align__(128) std::byte attn_shared[];
  AttnBlock<AttnLayout<kFormat, kHeadDim, kTiles>>(params, attn_shared).run();
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// Attention over the tiled cache, one launch for decode and prefill. The reduction tree knows token
// indices only: leaves of 32 tokens fold in order into runs of 128, these into nodes of 512, into
// supernodes of 4,096, into the result, whoever computes which part (attn_work_kernel.cuh). A warp
// takes leaves alone, without a barrier, and folds its run; the block folds the runs of its
// streams; states that cross blocks go through scratch, where the last block to come folds them.
// A column is a query; those of rows of one sequence that share a KV head share a pass. The bits of
// a column depend on its query and tokens only: masked tokens and empty states change nothing, and
// no contraction is left to the compiler.
// The step's positions, slots and pages are read before the dependency wait: kernels that come
// directly before this one in a step write queries and cache only.
#pragma once

#include "kernels/attn/attn_leaf_kernel.cuh"
#include "kernels/common/arch.cuh"

namespace fathom::cuda {

template <class L>
class AttnBlock {
  using OwnState = AttnState<L::kOwnChunks>;

 public:
  __device__ AttnBlock(const AttnParams& params, std::byte* shared)
      : at_{params, shared}, work_(at_), feed_(at_, work_), leaf_(at_), levels_(at_), slots_(at_) {}

  __device__ void run() {
    feed_.start_early();
    AttnCursor now = work_.first(static_cast<int>(blockIdx.x));
    start_item(now);
    pdl_wait();
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
    if (!c.valid) return;
    const AttnEntry& e = work_.entry(c.entry);
    const int group = at_.params.group, n_columns = e.n_rows * group;
    const int tile = static_cast<int>(at_.tile) * kAttnKernelColumns;
    const int column = tile + static_cast<int>(at_.row), row = e.row + column / group;
    is_active_ = tile < n_columns;
    is_inside_ = column < n_columns;
    head_ = row * at_.params.n_heads + c.kv_head * group + column % group;
    if (is_inside_) last_token_ = at_.params.pos[row];
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
    const int begin_of_item = now.end - 1 >> work_.unit_shift() << work_.unit_shift();
    if (!ends_item || now.round != begin_of_item)
      levels_.climb(own, now.round + work_.round_tokens(), ends_item);
    if (ends_item) deliver(now, own);
  }

  // The warps of several streams exchange their runs, each folds its chunks of all.
  __device__ void fold_streams(int slot, OwnState& own) const {
    if constexpr (L::kStreams == 1) {
      __syncthreads();
      own = run_;
    } else {
      const AttnStored<L> mine{reinterpret_cast<float*>(at_.shared + at_.slot(at_.stream, slot))};
      __syncwarp();
#pragma unroll
      for (int c = 0; c < L::kChunks; ++c) mine.out(at_, c) = run_.out[c];
      if (at_.quad == 0) {
        mine.max(at_) = run_.max;
        mine.sum(at_) = run_.sum;
      }
      __syncthreads();
      own.clear();
#pragma unroll
      for (int stream = 0; stream < L::kStreams; ++stream) {
        const AttnStored<L> from{reinterpret_cast<float*>(at_.shared + at_.slot(stream, slot))};
        OwnState x;
        x.clear();
        x.max = from.max(at_);
        x.sum = from.sum(at_);
#pragma unroll
        for (int i = 0; i < L::kOwnChunks; ++i) {
          if (at_.own_chunk(i) < L::kChunks) x.out[i] = from.out(at_, at_.own_chunk(i));
        }
        own.fold(x);
      }
      __syncthreads();
    }
  }

  // The state of an item: the result, or a part that waits in scratch for the others.
  __device__ void deliver(const AttnCursor& now, OwnState& own) const {
    const AttnEntry& e = work_.entry(now.entry);
    const int n_units = work_.n_units(e.len), n_kv_heads = at_.params.n_kv_heads;
    if (n_units > 1) {
      const int of_super = kAttnSuperTokens >> work_.unit_shift();  // units
      const int n_supers = (n_units + of_super - 1) / of_super;
      const int unit = now.item / n_kv_heads - e.first_unit;
      const int super = unit / of_super;
      const int first = now.item - unit % of_super * n_kv_heads;  // slot of the super's first unit
      slots_.store(now.item, own);
      if (of_super > 1) {
        const int n = min(of_super, n_units - super * of_super);
        if (!slots_.is_last(at_.params.counters + first, n)) return;
        const bool in_runs = 1 << work_.unit_shift() == kAttnRunTokens;
        slots_.fold(first, n_kv_heads, n, in_runs, own);
      }
      if (n_supers > 1) {
        __syncthreads();  // the slot's state was read by all
        if (of_super > 1) slots_.store(first, own);
        unsigned* of_entries = at_.params.counters + at_.params.n_slots;
        if (!slots_.is_last(of_entries + now.entry * n_kv_heads + now.kv_head, n_supers)) return;
        slots_.fold(e.first_unit * n_kv_heads + now.kv_head, of_super * n_kv_heads, n_supers, false,
                    own);
      }
    }
    store_outputs(own);
  }
  __device__ void store_outputs(const OwnState& own) const {
    if (!is_inside_) return;
    float* to = at_.params.out + int64_t{head_} * L::kDims;
    const float factor = __frcp_rn(own.sum);
#pragma unroll
    for (int i = 0; i < L::kOwnChunks; ++i) {
      if (at_.own_chunk(i) >= L::kChunks) break;
      const float4& x = own.out[i];
      leaf_.store(to + at_.own_chunk(i) * 16,
                  make_float4(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor),
                              __fmul_rn(x.z, factor), __fmul_rn(x.w, factor)));
    }
  }

  const AttnThread<L> at_;
  AttnWork<L> work_;
  AttnFeed<L> feed_;
  AttnLeaf<L> leaf_;
  AttnLevels<L> levels_;
  AttnSlots<L> slots_;
  AttnState<L::kChunks> run_;
  bool is_active_, is_inside_;  // the warp's tile, the thread's column
  int head_, last_token_;       // of the column; heads are counted through the rows
};

template <KvFormat kFormat, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(AttnLayout<kFormat, kHeadDim, kTiles>::kThreads)
    attn_kernel(const __grid_constant__ AttnParams params) {
  extern __shared__ __align__(128) std::byte attn_shared[];
  pdl_launch_dependents();
  AttnBlock<AttnLayout<kFormat, kHeadDim, kTiles>>(params, attn_shared).run();
}

}  // namespace fathom::cuda

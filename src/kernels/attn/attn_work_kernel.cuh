// SPDX-License-Identifier: Apache-2.0
// The work of a launch, cut on the device from the step's positions:
//   entry  successive rows of one sequence, at most rows_per_entry
//   unit   a node of the reduction tree of an entry and KV head, what a block takes at once: 128 or
//          512 aligned tokens, or all of them; of one size in a launch
//   round  what the streams of a block take together: 128 tokens each, or a leaf each of units of
//          128 tokens
// Where the states of the units of an entry and KV head meet is one thing in a launch
// (AttnMeeting).
#pragma once

#include <climits>

#include "kernels/attn/attn_layout_kernel.cuh"
#include "kernels/common/arch.cuh"

namespace fathom::cuda {

// Rows [row, row + n_rows) of the step, which are of one sequence; the longest has len tokens.
struct AttnEntry {
  int row, n_rows, len;
  int first_unit;  // if spread: units of all entries before
};

enum class AttnMeeting {
  nowhere,  // a block takes all of an entry and head
  cluster,  // in the shared memory of a cluster whose blocks take a unit each; if there are several
            // clusters of a head, of these in device memory. An entry has as many for a head as the
            // longest needs, filled up so that they lie in one cluster or fill several: some have
            // no tokens
  memory,   // in device memory: the units of all entries and heads, of 512 tokens, one after the
            // other, are cut into as many successions as there are blocks
};

// Of an entry and KV head, if in memory: units [first, first + n) of all.
struct AttnHead {
  int entry, kv_head, first, n;
};

// A stream's place among the leaves of its block's units, one after the other.
struct AttnCursor {
  bool valid;
  int item;                  // the unit's number, with those that have no tokens
  int entry, kv_head, unit;  // the unit's number among its head's
  int end, len;              // of the unit's tokens, of the entry's; 0 beyond the entries
  int round, step;           // the round's first token; the stream's leaf in it
  bool starts_head;
};

template <class L>
class AttnWork {
 public:
  // Every block finds the same entries. REQUIRES: all threads call it.
  __device__ explicit AttnWork(const AttnThread<L>& at)
      : at_(at),
        entries_(reinterpret_cast<AttnEntry*>(at.shared + L::kEntries)),
        cluster_size_(static_cast<int>(cluster_size())) {
    find_entries();
  }

  __device__ const AttnEntry& entry(int i) const { return entries_[i]; }
  __device__ AttnMeeting meeting() const { return meeting_; }
  __device__ int unit_shift() const { return unit_shift_; }
  __device__ int n_units(int len) const { return units(len, unit_shift_); }
  __device__ int blocks_of_cluster() const { return cluster_size_; }
  // In a cluster: units of an entry and head, and how many of these are of one cluster at a time.
  __device__ int group() const { return group_; }
  __device__ int team() const { return min(group_, cluster_size_); }

  // Whether the block takes no unit after this one; in a cluster all or none.
  __device__ bool is_last(const AttnCursor& c) const {
    return c.item + static_cast<int>(gridDim.x) >= n_items_;
  }

  // In memory: units of all heads, those before a block's, whose a unit is, and where it is.
  __device__ int n_all_units() const { return n_items_; }
  __device__ int first_unit_of(int block) const {
    return min(block, n_takers_) * n_items_ / n_takers_;
  }
  __device__ int block_of(int unit) const { return ((unit + 1) * n_takers_ - 1) / n_items_; }
  __device__ AttnHead head_at(int unit) const {
    int low = 0, high = n_entries_ - 1;
    while (low < high) {  // the last that begins there or before
      const int middle = (low + high + 1) / 2;
      if (entries_[middle].first_unit <= unit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    AttnHead head;
    head.entry = low;
    head.n = n_units(entries_[low].len);
    head.kv_head = (unit - entries_[low].first_unit) / head.n;
    head.first = entries_[low].first_unit + head.kv_head * head.n;
    return head;
  }
  // REQUIRES: there is one.
  __device__ AttnHead next(AttnHead head) const {
    head.first += head.n;
    if (++head.kv_head == at_.params.n_kv_heads) {
      head.kv_head = 0;
      head.n = n_units(entries_[++head.entry].len);
    }
    return head;
  }

  __device__ int round_tokens() const { return L::kStreams * kAttnLeafTokens * steps_; }
  __device__ int token(const AttnCursor& c) const {
    return c.round + (static_cast<int>(at_.stream) * steps_ + c.step) * kAttnLeafTokens;
  }
  __device__ int first_token(const AttnCursor& c) const { return c.unit << unit_shift_; }
  __device__ bool ends_round(const AttnCursor& c) const { return c.step + 1 == steps_; }
  __device__ bool ends_unit(const AttnCursor& c) const {
    return ends_round(c) && c.round + round_tokens() >= c.end;
  }

  // The block's first unit.
  __device__ AttnCursor first() const {
    const int block = static_cast<int>(blockIdx.x);
    if (meeting_ != AttnMeeting::memory) return item(block);
    AttnCursor c{};
    c.item = first_unit_of(block);
    c.valid = c.item < last_unit_;
    if (!c.valid) return c;
    const AttnHead head = head_at(c.item);
    c.entry = head.entry;
    c.kv_head = head.kv_head;
    c.unit = c.item - head.first;
    c.len = entries_[c.entry].len;
    c.starts_head = true;
    start_unit(c);
    return c;
  }
  __device__ void advance(AttnCursor& c) const {
    c.starts_head = false;
    if (!ends_round(c)) {
      ++c.step;
      return;
    }
    c.step = 0;
    c.round += round_tokens();
    if (c.round < c.end) return;
    if (meeting_ != AttnMeeting::memory) {
      c = item(c.item + static_cast<int>(gridDim.x));
      return;
    }
    ++c.item;
    ++c.unit;
    c.valid = c.item < last_unit_;
    if (!c.valid) return;
    if (c.end == c.len) {
      c.unit = 0;
      c.starts_head = true;
      if (++c.kv_head == at_.params.n_kv_heads) {
        c.kv_head = 0;
        c.len = entries_[++c.entry].len;
      }
    }
    start_unit(c);
  }

  // Tokens of the cursor's entry that were cached before this step: known of a sequence's first
  // rows only.
  __device__ int n_cached(const AttnCursor& c) const {
    const int row = entries_[c.entry].row;
    const bool first =
        row == 0 ? at_.params.is_first_launch : at_.params.slot[row - 1] != at_.params.slot[row];
    return first ? at_.params.pos[row] : 0;
  }
  __device__ const int32_t* pages(const AttnCursor& c) const {
    return at_.params.page_table +
           int64_t{at_.params.slot[entries_[c.entry].row]} * at_.params.max_pages;
  }

 private:
  static constexpr int kWhole = 30;  // units of 2^30 tokens: of all
  __device__ static constexpr int shift_of(int size) {
    return size == 0 ? 7 : size == 1 ? 9 : kWhole;
  }
  static_assert(kAttnRunTokens == 1 << 7 && kAttnNodeTokens == 1 << 9);

  __device__ static int units(int len, int shift) { return (len - 1 >> shift) + 1; }
  // Whole clusters.
  __device__ int fill(int n) const { return (n + cluster_size_ - 1) & ~(cluster_size_ - 1); }
  // Of so many units, fewer than 2^22, on all blocks.
  __device__ static int turns(int n) {
    const int n_blocks = static_cast<int>(gridDim.x);
    const int least = __float2int_rz(__fdividef(__int2float_rn(n), __int2float_rn(n_blocks)));
    return least + (least * n_blocks < n);
  }

  // Of those that meet nowhere or in a cluster.
  __device__ AttnCursor item(int i) const {
    AttnCursor c{};
    c.item = i;
    c.valid = i < n_items_;
    c.starts_head = c.valid;
    if (!c.valid) return c;
    const int head = i / group_, entry = head / at_.params.n_kv_heads;
    c.unit = i - head * group_;
    c.kv_head = head - entry * at_.params.n_kv_heads;
    if (entry >= n_entries_) return c;
    c.entry = unit_shift_ == kWhole ? n_entries_ - 1 - entry : entry;  // longest of a prompt first
    c.len = entries_[c.entry].len;
    start_unit(c);
    return c;
  }
  __device__ void start_unit(AttnCursor& c) const {
    c.round = c.unit << unit_shift_;
    c.end = c.len - c.round > 1 << unit_shift_ ? c.round + (1 << unit_shift_) : c.len;
  }

  __device__ bool starts_entry(int row) const {
    return at_.params.pos[row] >= 0 &&
           (row % at_.params.rows_per_entry == 0 || at_.params.pos[row - 1] < 0 ||
            at_.params.slot[row - 1] != at_.params.slot[row]);
  }
  __device__ AttnEntry entry_at(int row) const {
    AttnEntry e{row, 1, at_.params.pos[row] + 1};
    for (int r = row + 1; r < at_.params.n_rows && !(at_.params.pos[r] < 0) && !starts_entry(r);
         ++r) {
      ++e.n_rows;
      e.len = max(e.len, at_.params.pos[r] + 1);
    }
    return e;
  }

  // entries_[0, n_entries_), every block alike.
  __device__ void find_entries() {
    const int per_thread = (at_.params.n_rows + L::kThreads - 1) / L::kThreads;
    const int begin = min(static_cast<int>(threadIdx.x) * per_thread, at_.params.n_rows);
    const int end = min(begin + per_thread, at_.params.n_rows);
    int n = 0, longest = 0, n_nodes = 0;  // the latter of a KV head
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      const int len = entry_at(row).len;
      ++n;
      longest = max(longest, len);
      n_nodes += units(len, 9);
    }
    int until = n;  // of the warp's threads up to and with this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, until, distance);
      if (static_cast<int>(at_.lane) >= distance) until += before;
    }
    longest = static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(longest)));
    n_nodes = __reduce_add_sync(0xffffffffu, n_nodes);
    int4* of_warps = reinterpret_cast<int4*>(at_.shared + L::kScan);
    if (at_.lane == 31) of_warps[at_.warp] = make_int4(until, longest, n_nodes, 0);
    __syncthreads();
    n_entries_ = n_nodes = 0;
    int at = until - n;
#pragma unroll
    for (int w = 0; w < L::kWarps; ++w) {
      const int4 of_warp = of_warps[w];
      if (w < static_cast<int>(at_.warp)) at += of_warp.x;
      n_entries_ += of_warp.x;
      longest = max(longest, of_warp.y);
      n_nodes += of_warp.z;
    }
    choose_meeting(longest, n_nodes * at_.params.n_kv_heads);
    for (int row = begin; row < end; ++row) {
      if (starts_entry(row)) entries_[at++] = entry_at(row);
    }
    __syncthreads();
    if (meeting_ != AttnMeeting::memory) return;
    for (int i = static_cast<int>(threadIdx.x); i < n_entries_; i += L::kThreads) {
      int first = 0;
      for (int before = 0; before < i; ++before) first += n_units(entries_[before].len);
      entries_[i].first_unit = first * at_.params.n_kv_heads;
    }
    __syncthreads();
  }

  // What ends first on as many blocks as there are. Costs are a stream's tokens: a unit costs as
  // much as 48 for its start, its state and the fold.
  __device__ void choose_meeting(int longest, int n_nodes) {
    const int n_heads = n_entries_ * at_.params.n_kv_heads;
    int best = INT_MAX;
#pragma unroll
    for (int size = 0; size < 3; ++size) {
      const int shift = shift_of(size);
      if (shift < L::kMinUnitShift) continue;
      int group = longest == 0 ? 1 : units(longest, shift);
      if (group > 1 && cluster_size_ == 1) continue;
      if (group < cluster_size_) {
        group = 1 << (32 - __clz(group - 1));
      } else {
        group = fill(group);
      }
      const int n_items = fill(n_heads * group);
      const int shift_of_cluster = 31 - __clz(cluster_size_);
      if (group > cluster_size_ && n_items >> shift_of_cluster > at_.params.n_slots) continue;
      const int of_stream =
          size == 0 ? kAttnLeafTokens
          : size == 1
              ? min(longest, (1 << shift) / L::kStreams)
              : (longest - 1) / (L::kStreams * kAttnRunTokens) * kAttnRunTokens + kAttnRunTokens;
      const int cost = turns(n_items) * (of_stream + 48);
      if (cost >= best) continue;
      best = cost;
      unit_shift_ = shift;
      group_ = group;
      n_items_ = n_entries_ == 0 ? 0 : n_items;
    }
    meeting_ = group_ == 1 ? AttnMeeting::nowhere : AttnMeeting::cluster;
    try_memory(longest, n_nodes, best);
    steps_ = unit_shift_ == shift_of(0) ? 1 : kAttnRunTokens / kAttnLeafTokens;
  }
  // Nodes of 512 tokens of few heads, none of which has more than two to fold, in place of a second
  // turn through a cluster. Without clusters whenever it costs less.
  __device__ void try_memory(int longest, int n_nodes, int best) {
    const int n_blocks = static_cast<int>(gridDim.x), nodes = turns(n_nodes);
    const bool takes =
        cluster_size_ > 1
            ? group_ > 1 && unit_shift_ == 9 && n_items_ > n_blocks &&
                  n_entries_ * at_.params.n_kv_heads * cluster_size_ <= n_blocks
            : longest > kAttnRunTokens && nodes * (kAttnNodeTokens / L::kStreams) + 96 < best;
    if (!takes || n_nodes > at_.params.n_slots) return;
    meeting_ = AttnMeeting::memory;
    unit_shift_ = 9;
    group_ = 1;
    n_items_ = n_nodes;
    n_takers_ = min(n_blocks, n_nodes);
    last_unit_ = first_unit_of(static_cast<int>(blockIdx.x) + 1);
  }

  const AttnThread<L> at_;
  AttnEntry* entries_;
  int cluster_size_;
  AttnMeeting meeting_;
  int n_entries_, n_items_, unit_shift_, group_, steps_;
  int n_takers_ = 1, last_unit_ = 0;  // in memory: blocks that have units; the block's end
};

}  // namespace fathom::cuda

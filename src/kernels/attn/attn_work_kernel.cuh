// SPDX-License-Identifier: Apache-2.0
// The work of a launch, cut on the device from the step's positions:
//   entry  successive rows of one sequence, at most rows_per_entry
//   unit   a node of the reduction tree of an entry: 128 or 512 aligned tokens, or all of them; of
//          one size in a launch, the one that ends first on as many blocks as there are
//   item   a unit of one KV head; a block takes every gridDim.x-th. An entry has as many for a KV
//          head as the longest needs, filled up so that they lie in one cluster or fill several:
//          some have no tokens
//   round  what the streams of a block take together: 128 tokens each, or a leaf each of units of
//          128 tokens
#pragma once

#include <climits>

#include "kernels/attn/attn_layout_kernel.cuh"
#include "kernels/common/arch.cuh"

namespace fathom::cuda {

// Rows [row, row + n_rows) of the step, which are of one sequence; the longest has len tokens.
struct AttnEntry {
  int row, n_rows, len;
};

// A stream's place among the leaves of its block's items, one after the other.
struct AttnCursor {
  bool valid;
  int item, entry, kv_head, unit;
  int end, len;     // of the item's tokens, of the entry's; 0 beyond the entries
  int round, step;  // the round's first token; the stream's leaf in it
  bool starts_item;
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
  __device__ int unit_shift() const { return unit_shift_; }
  __device__ int n_units(int len) const { return units(len, unit_shift_); }
  // Items of an entry and KV head, and how many of these are of one cluster at a time.
  __device__ int group() const { return group_; }
  __device__ int team() const { return min(group_, cluster_size_); }
  __device__ int blocks_of_cluster() const { return cluster_size_; }

  __device__ int round_tokens() const { return L::kStreams * kAttnLeafTokens * steps_; }
  __device__ int token(const AttnCursor& c) const {
    return c.round + (static_cast<int>(at_.stream) * steps_ + c.step) * kAttnLeafTokens;
  }
  __device__ bool ends_round(const AttnCursor& c) const { return c.step + 1 == steps_; }
  __device__ bool ends_item(const AttnCursor& c) const {
    return ends_round(c) && c.round + round_tokens() >= c.end;
  }

  __device__ AttnCursor first(int item) const {
    AttnCursor c{};
    c.item = item;
    c.valid = item < n_items_;
    c.starts_item = c.valid;
    if (!c.valid) return c;
    const int head = item / group_, entry = head / at_.params.n_kv_heads;
    c.unit = item - head * group_;
    c.kv_head = head - entry * at_.params.n_kv_heads;
    if (entry >= n_entries_) return c;
    c.entry = unit_shift_ == kWhole ? n_entries_ - 1 - entry : entry;  // longest of a prompt first
    c.len = entries_[c.entry].len;
    c.round = c.unit << unit_shift_;
    c.end = c.len - c.round > 1 << unit_shift_ ? c.round + (1 << unit_shift_) : c.len;
    return c;
  }
  __device__ void advance(AttnCursor& c) const {
    c.starts_item = false;
    if (!ends_round(c)) {
      ++c.step;
      return;
    }
    c.step = 0;
    c.round += round_tokens();
    if (c.round >= c.end) c = first(c.item + static_cast<int>(gridDim.x));
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
    int n = 0, longest = 0;
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      ++n;
      longest = max(longest, entry_at(row).len);
    }
    int until = n;  // of the warp's threads up to and with this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, until, distance);
      if (static_cast<int>(at_.lane) >= distance) until += before;
    }
    longest = static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(longest)));
    int2* of_warps = reinterpret_cast<int2*>(at_.shared + L::kScan);
    if (at_.lane == 31) of_warps[at_.warp] = make_int2(until, longest);
    __syncthreads();
    n_entries_ = 0;
    int at = until - n;
#pragma unroll
    for (int w = 0; w < L::kWarps; ++w) {
      if (w < static_cast<int>(at_.warp)) at += of_warps[w].x;
      n_entries_ += of_warps[w].x;
      longest = max(longest, of_warps[w].y);
    }
    choose_units(longest);
    for (int row = begin; row < end; ++row) {
      if (starts_entry(row)) entries_[at++] = entry_at(row);
    }
    __syncthreads();
  }

  // An item costs a stream's tokens, and as much as 48 for its start, its state and the fold.
  __device__ void choose_units(int longest) {
    const int n_heads = n_entries_ * at_.params.n_kv_heads;
    int best = INT_MAX;
#pragma unroll
    for (int size = 0; size < 3; ++size) {
      const int shift = shift_of(size);
      if (shift < L::kMinUnitShift) continue;
      if (size == 0 && cluster_size_ == 1 && longest > 1 << shift) continue;  // too many levels
      int group = longest == 0 ? 1 : units(longest, shift);
      if (group < cluster_size_) {
        group = 1 << (32 - __clz(group - 1));
      } else {
        group = (group + cluster_size_ - 1) / cluster_size_ * cluster_size_;
      }
      const int n_items = (n_heads * group + cluster_size_ - 1) / cluster_size_ * cluster_size_;
      if (group > cluster_size_ && n_items / cluster_size_ > at_.params.n_slots) continue;
      const int n_blocks = static_cast<int>(gridDim.x),
                rounds = (n_items + n_blocks - 1) / n_blocks;
      const int of_stream =
          size == 0 ? kAttnLeafTokens
          : size == 1
              ? min(longest, (1 << shift) / L::kStreams)
              : (longest - 1) / (L::kStreams * kAttnRunTokens) * kAttnRunTokens + kAttnRunTokens;
      const int cost = rounds * (of_stream + 48);
      if (cost >= best) continue;
      best = cost;
      unit_shift_ = shift;
      group_ = group;
      n_items_ = n_entries_ == 0 ? 0 : n_items;
    }
    steps_ = unit_shift_ == shift_of(0) ? 1 : kAttnRunTokens / kAttnLeafTokens;
  }

  const AttnThread<L> at_;
  AttnEntry* entries_;
  int cluster_size_;
  int n_entries_, n_items_, unit_shift_, group_, steps_;
};

}  // namespace fathom::cuda

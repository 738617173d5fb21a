// SPDX-License-Identifier: Apache-2.0
// The work of a launch, cut on the device from the step's positions:
//   entry  successive rows of one sequence, at most rows_per_entry
//   unit   a node of the reduction tree of an entry: 128, 512 or 4,096 aligned tokens, or all of
//          them; of one size in a launch, the one that ends first on as many blocks as there are
//   item   a unit of one KV head; a block takes every gridDim.x-th
//   round  what the streams of a block take together: 128 tokens each, or a leaf each of units of
//          128 tokens
#pragma once

#include "kernels/attn/attn_layout_kernel.cuh"

namespace fathom::cuda {

// Rows [row, row + n_rows) of the step, which are of one sequence; the longest has len tokens.
struct AttnEntry {
  int row, n_rows, len, first_unit;  // units of the entries before
};

// A stream's place among the leaves of its block's items, one after the other.
struct AttnCursor {
  bool valid;
  int item, entry, kv_head;
  int end, len;     // of the item's tokens, of the entry's
  int round, step;  // the round's first token; the stream's leaf in it
  bool starts_item;
};

template <class L>
class AttnWork {
 public:
  // Every block finds the same entries. REQUIRES: all threads call it.
  __device__ explicit AttnWork(const AttnThread<L>& at)
      : at_(at), entries_(reinterpret_cast<AttnEntry*>(at.shared + L::kEntries)) {
    find_entries();
  }

  __device__ const AttnEntry& entry(int i) const { return entries_[i]; }
  __device__ int unit_shift() const { return unit_shift_; }
  __device__ int n_units(int len) const { return units(len, unit_shift_); }
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
    if (!c.valid) return c;
    c.starts_item = true;
    const int unit = item / at_.params.n_kv_heads;
    c.kv_head = item - unit * at_.params.n_kv_heads;
    int begin = 0;
    if (unit_shift_ == kWhole) {
      c.entry = n_entries_ - 1 - unit;  // the longest of a prompt first
    } else {
      int high = n_entries_;  // the last entry whose first unit is not behind
      while (high - c.entry > 1) {
        const int middle = (c.entry + high) / 2;
        (entries_[middle].first_unit <= unit ? c.entry : high) = middle;
      }
      begin = (unit - entries_[c.entry].first_unit) << unit_shift_;
    }
    c.len = entries_[c.entry].len;
    c.end = c.len - begin > 1 << unit_shift_ ? begin + (1 << unit_shift_) : c.len;
    c.round = begin;
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
  static constexpr int kSizes = 3;
  __device__ static constexpr int shift_of(int size) {
    return size == 0 ? 7 : size == 1 ? 9 : size == 2 ? 12 : kWhole;
  }
  static_assert(kAttnRunTokens == 1 << 7 && kAttnNodeTokens == 1 << 9 &&
                kAttnSuperTokens == 1 << 12);
  struct Totals {
    int units[kSizes], entries, longest;
  };
  static_assert(sizeof(Totals) <= 32);

  __device__ static int units(int len, int shift) { return ((len - 1) >> shift) + 1; }

  __device__ bool starts_entry(int row) const {
    return at_.params.pos[row] >= 0 &&
           (row % at_.params.rows_per_entry == 0 || at_.params.pos[row - 1] < 0 ||
            at_.params.slot[row - 1] != at_.params.slot[row]);
  }
  __device__ AttnEntry entry_at(int row) const {
    AttnEntry e{row, 1, at_.params.pos[row] + 1, 0};
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
    Totals own{};
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      const int len = entry_at(row).len;
      ++own.entries;
      own.longest = max(own.longest, len);
#pragma unroll
      for (int size = 0; size < kSizes; ++size) own.units[size] += units(len, shift_of(size));
    }
    Totals until = own;  // of the warp's threads up to and with this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      Totals before;
      before.entries = __shfl_up_sync(0xffffffffu, until.entries, distance);
      before.longest = __shfl_up_sync(0xffffffffu, until.longest, distance);
#pragma unroll
      for (int size = 0; size < kSizes; ++size)
        before.units[size] = __shfl_up_sync(0xffffffffu, until.units[size], distance);
      if (static_cast<int>(at_.lane) >= distance) add(until, before);
    }
    auto* of_warps = reinterpret_cast<Totals*>(at_.shared + L::kScan);
    if (at_.lane == 31) of_warps[at_.warp] = until;
    __syncthreads();
    Totals all{}, warps_before{};
#pragma unroll
    for (int w = 0; w < L::kWarps; ++w) {
      if (w == static_cast<int>(at_.warp)) warps_before = all;
      add(all, of_warps[w]);
    }
    n_entries_ = all.entries;
    choose_units(all);
    int at = warps_before.entries + until.entries - own.entries;
    int first_unit = 0;
#pragma unroll
    for (int size = 0; size < kSizes; ++size) {
      if (shift_of(size) == unit_shift_)
        first_unit = warps_before.units[size] + until.units[size] - own.units[size];
    }
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      AttnEntry e = entry_at(row);
      e.first_unit = first_unit;
      first_unit += n_units(e.len);
      entries_[at++] = e;
    }
    __syncthreads();
  }
  __device__ static void add(Totals& to, const Totals& x) {
    to.entries += x.entries;
    to.longest = max(to.longest, x.longest);
#pragma unroll
    for (int size = 0; size < kSizes; ++size) to.units[size] += x.units[size];
  }

  // A unit costs its tokens and as much again as 64 for its start, its state and the fold.
  __device__ void choose_units(const Totals& all) {
    const int n_blocks = static_cast<int>(gridDim.x), n_kv_heads = at_.params.n_kv_heads;
    int64_t best = INT64_MAX;
#pragma unroll
    for (int size = 0; size <= kSizes; ++size) {
      if (shift_of(size) < L::kMinUnitShift) continue;
      const int n_units = size < kSizes ? all.units[size < kSizes ? size : 0] : all.entries;
      const int n_items = n_units * n_kv_heads;
      if (n_items > at_.params.n_slots && size < kSizes) continue;  // no room for their states
      const int rounds = (n_items + n_blocks - 1) / n_blocks;
      const int64_t cost = int64_t{rounds} * (min(1 << shift_of(size), all.longest) + 64);
      if (cost >= best) continue;
      best = cost;
      unit_shift_ = shift_of(size);
      n_items_ = n_items;
    }
    steps_ = unit_shift_ == shift_of(0) ? 1 : kAttnRunTokens / kAttnLeafTokens;
  }

  const AttnThread<L> at_;
  AttnEntry* entries_;
  int n_entries_, n_items_, unit_shift_, steps_;
};

}  // namespace fathom::cuda

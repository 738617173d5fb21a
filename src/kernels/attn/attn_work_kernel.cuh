// SPDX-License-Identifier: Apache-2.0
// The work of a launch, cut on the device from the step's positions: entries, and items of steps.
#pragma once

#include "kernels/attn/attn_layout_kernel.cuh"

namespace fathom::cuda {

// Rows [row, row + n_rows) of the step, which are of one sequence; the longest has len tokens.
struct AttnEntry {
  int row, n_rows, len, first_split;  // splits of the entries before
};
// One step of an item; tokens [begin, end) are the item's.
struct AttnStep {
  bool valid;
  int item, entry, kv_head, begin, end, len, token;
  int64_t offset;  // of the warp's tile in the cache
};

template <class L>
class AttnWork {
 public:
  // Every block finds the same entries. REQUIRES: all threads call it.
  __device__ explicit AttnWork(const AttnThread<L>& at)
      : at_(at), entries_(reinterpret_cast<AttnEntry*>(at.shared + (L::kEntries + 15) / 16 * 16)) {
    find_entries();
  }

  __device__ const AttnEntry& entry(int i) const { return entries_[i]; }
  __device__ bool is_split() const { return is_split_; }  // items are splits
  __device__ static int n_splits(int len) {
    return (len + kAttnKernelSplitTokens - 1) / kAttnKernelSplitTokens;
  }

  __device__ AttnStep first_step(int item) const {
    AttnStep s{};
    s.item = item;
    s.valid = item < n_items_;
    if (!s.valid) return s;
    const int index = item / at_.params.n_kv_heads;
    s.kv_head = item % at_.params.n_kv_heads;
    if (is_split_) {
      int low = 0, high = n_entries_;  // the last entry whose first split is not behind
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (entries_[middle].first_split <= index ? low : high) = middle;
      }
      s.entry = low;
      s.len = entries_[low].len;
      s.begin = (index - entries_[low].first_split) * kAttnKernelSplitTokens;
      s.end = min(s.begin + kAttnKernelSplitTokens, s.len);
    } else {
      s.entry = n_entries_ - 1 - index;  // the longest of a prompt first
      s.len = entries_[s.entry].len;
      s.begin = 0;
      s.end = s.len;
    }
    s.token = s.begin;
    place(s);
    return s;
  }
  __device__ AttnStep step_after(const AttnStep& before) const {
    if (!before.valid) return before;
    AttnStep s = before;
    s.token += L::kStepTokens;
    if (s.token >= s.end) return first_step(s.item + static_cast<int>(gridDim.x));
    place(s);
    return s;
  }

  // Whether the warp's tile was complete before this step: known of a sequence's first rows only.
  __device__ bool is_cached(const AttnStep& s) const {
    if (!s.valid) return false;
    const int row = entries_[s.entry].row;
    const bool first =
        row == 0 ? at_.params.is_first_launch : at_.params.slot[row - 1] != at_.params.slot[row];
    return first && s.token + (at_.warp + 1) * kKvTileTokens <= at_.params.pos[row];
  }

 private:
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

  // entries_[0, n_entries_), and one behind that holds the sum of all splits. Every block alike.
  __device__ void find_entries() {
    const int per_thread = (at_.params.n_rows + L::kThreads - 1) / L::kThreads;
    const int begin = min(static_cast<int>(threadIdx.x) * per_thread, at_.params.n_rows);
    const int end = min(begin + per_thread, at_.params.n_rows);
    int n = 0, splits = 0;
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      ++n;
      splits += n_splits(entry_at(row).len);
    }
    int n_until = n, splits_until = splits;  // of the threads up to and with this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int n_before = __shfl_up_sync(0xffffffffu, n_until, distance);
      const int splits_before = __shfl_up_sync(0xffffffffu, splits_until, distance);
      if (at_.lane >= distance) {
        n_until += n_before;
        splits_until += splits_before;
      }
    }
    int2* totals = reinterpret_cast<int2*>(at_.shared + L::kScan);
    if (at_.lane == 31) totals[at_.warp] = make_int2(n_until, splits_until);
    __syncthreads();
    n_entries_ = 0;
    n_splits_ = 0;
    int at = n_until - n, first_split = splits_until - splits;
    for (int w = 0; w < L::kWarps; ++w) {
      const int2 total = totals[w];
      if (w < at_.warp) {
        at += total.x;
        first_split += total.y;
      }
      n_entries_ += total.x;
      n_splits_ += total.y;
    }
    for (int row = begin; row < end; ++row) {
      if (!starts_entry(row)) continue;
      AttnEntry e = entry_at(row);
      e.first_split = first_split;
      first_split += n_splits(e.len);
      entries_[at++] = e;
    }
    if (threadIdx.x == 0) entries_[n_entries_] = AttnEntry{at_.params.n_rows, 0, 0, n_splits_};
    __syncthreads();
    is_split_ = int64_t{n_splits_} * at_.params.n_kv_heads <= at_.params.n_slots;
    n_items_ = (is_split_ ? n_splits_ : n_entries_) * at_.params.n_kv_heads;
  }

  __device__ void place(AttnStep& s) const {
    const int token = s.token + at_.warp * kKvTileTokens;
    if (token >= s.len) return;  // neither read nor used, as are the pages there
    const int slot = at_.params.slot[entries_[s.entry].row];
    const int32_t* pages = at_.params.page_table + int64_t{slot} * at_.params.max_pages;
    s.offset = at_.params.kv.tile_offset(pages, s.kv_head, token);
  }

  const AttnThread<L> at_;
  AttnEntry* entries_;
  int n_entries_, n_splits_, n_items_;
  bool is_split_;
};

}  // namespace fathom::cuda

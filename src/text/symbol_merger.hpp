// SPDX-License-Identifier: Apache-2.0
// The merge loop that both encoders share: of all adjacent pairs that may merge, the one with the
// lowest priority number, leftmost first, becomes one symbol, until none is left. A linked list
// and a heap: O(n log n).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace fathom::text {

constexpr uint32_t kNoPair = 0xFFFFFFFF;

struct Merge {
  uint32_t priority = kNoPair;  // kNoPair: does not merge
  int32_t id = -1;              // of the symbol it becomes
};

struct Symbol {
  int32_t id;        // its token, -1 if it is none
  uint32_t begin;    // its bytes in the text
  uint32_t n_bytes;  // 0 once merged into its left neighbour
  uint32_t prev = 0, next = 0;
  Merge pair;  // with the symbol to the right
};

class SymbolMerger {
 public:
  // To be filled by the caller before run(); what is left after it: those with n_bytes > 0.
  std::vector<Symbol> symbols;

  // pair_of(left, right) tells what two adjacent symbols become.
  template <class PairOf>
  void run(PairOf&& pair_of) {
    const auto n = static_cast<uint32_t>(symbols.size());
    queue_.clear();
    for (uint32_t i = 0; i < n; ++i) {
      symbols[i].prev = i - 1;  // wraps to kEnd for the first
      symbols[i].next = i + 1 < n ? i + 1 : kEnd;
      symbols[i].pair = i + 1 < n ? pair_of(symbols[i], symbols[i + 1]) : Merge{};
      if (symbols[i].pair.priority != kNoPair) queue_.push_back(key(i));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const uint64_t top = queue_.back();
      queue_.pop_back();
      const auto at = static_cast<uint32_t>(top);
      Symbol& left = symbols[at];
      // An entry is stale when its symbol is gone or pairs with another neighbour by now.
      if (left.n_bytes == 0 || left.pair.priority != top >> 32) continue;
      Symbol& right = symbols[left.next];
      left.id = left.pair.id;
      left.n_bytes += right.n_bytes;
      left.next = right.next;
      right.n_bytes = 0;
      if (left.next != kEnd) symbols[left.next].prev = at;
      update(at, pair_of);
      if (left.prev != kEnd) update(left.prev, pair_of);
    }
  }

 private:
  static constexpr uint32_t kEnd = 0xFFFFFFFF;

  uint64_t key(uint32_t at) const { return uint64_t{symbols[at].pair.priority} << 32 | at; }

  template <class PairOf>
  void update(uint32_t at, PairOf&& pair_of) {
    Symbol& symbol = symbols[at];
    symbol.pair = symbol.next == kEnd ? Merge{} : pair_of(symbol, symbols[symbol.next]);
    if (symbol.pair.priority == kNoPair) return;
    queue_.push_back(key(at));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  std::vector<uint64_t> queue_;  // min-heap of priority, then position
};

}  // namespace fathom::text

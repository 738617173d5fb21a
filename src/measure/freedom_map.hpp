// SPDX-License-Identifier: Apache-2.0
// Which knobs of a kernel can be turned without new bits. A change of one knob is judged with all
// settings of the others, at all sizes: its class is the worst that any of these gives.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measure/bitwise.hpp"
#include "measure/probe_op.hpp"

namespace fathom::measure {

using Knobs = std::map<std::string, std::string>;

struct FreedomRow {
  std::string knob, from, to;
  int n_pairs = 0;  // of variants that differ in this knob alone
  BitClass bit_class = BitClass::free;
  BitDifference difference;            // of all pairs and sizes
  std::optional<int64_t> least_depth;  // at which bits differ
  std::string why;                     // of F
};

class FreedomMap {
 public:
  // REQUIRES: the same knobs in all variants. `base` is the index of the variant that changes start
  // from.
  FreedomMap(std::vector<Knobs> variants, size_t base);
  // What the variants, in their order, gave at one size.
  void add(const ProbeSize& size, const std::vector<BitEvidence>& evidence);
  const std::vector<FreedomRow>& rows() const { return rows_; }

 private:
  struct Pair {
    size_t row, from, to;
  };
  std::vector<Pair> pairs_;
  std::vector<FreedomRow> rows_;
};

}  // namespace fathom::measure

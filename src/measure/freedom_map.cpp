// SPDX-License-Identifier: Apache-2.0
// All pairs of variants one knob apart, kept by the change that they stand for.
#include "measure/freedom_map.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

// The one knob in which the two differ; empty if there are several or none.
std::string knob_between(const Knobs& a, const Knobs& b) {
  std::string out;
  for (const auto& [name, value] : a) {
    if (b.at(name) == value) continue;
    if (!out.empty()) return "";
    out = name;
  }
  return out;
}

}  // namespace

FreedomMap::FreedomMap(std::vector<Knobs> variants, size_t base) {
  FATHOM_CHECK(base < variants.size(), "the base is one of the variants");
  for (size_t from = 0; from < variants.size(); ++from) {
    for (size_t to = 0; to < variants.size(); ++to) {
      const std::string knob = knob_between(variants[from], variants[to]);
      if (knob.empty() || variants[from].at(knob) != variants[base].at(knob)) continue;
      const std::string& value = variants[to].at(knob);
      auto row = std::ranges::find_if(
          rows_, [&](const FreedomRow& r) { return r.knob == knob && r.to == value; });
      if (row == rows_.end()) {
        row = rows_.emplace(rows_.end());
        row->knob = knob;
        row->from = variants[base].at(knob);
        row->to = value;
      }
      ++row->n_pairs;
      pairs_.push_back({static_cast<size_t>(row - rows_.begin()), from, to});
    }
  }
  // Rows of one knob together, in the order in which the variants bring its values.
  std::vector<size_t> order(rows_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return rows_[i].knob; });
  std::vector<size_t> place(order.size());
  std::vector<FreedomRow> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(rows_[order[i]]);
  }
  rows_ = std::move(sorted);
  for (Pair& pair : pairs_) pair.row = place[pair.row];
}

void FreedomMap::add(const ProbeSize& size, const std::vector<BitEvidence>& evidence) {
  for (const Pair& pair : pairs_) {
    FreedomRow& row = rows_[pair.row];
    const BitVerdict verdict = classify(evidence[pair.to], evidence[pair.from]);
    row.bit_class = worst(row.bit_class, verdict.bit_class);
    row.difference += verdict.difference;
    if (row.why.empty()) row.why = verdict.why;
    if (verdict.difference.n_different > 0)
      row.least_depth = std::min(row.least_depth.value_or(size.depth), size.depth);
  }
}

}  // namespace fathom::measure

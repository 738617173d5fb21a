// SPDX-License-Identifier: Apache-2.0
// The walk over the records, as that of the census.
#include "measure/overlap.hpp"

#include <algorithm>
#include <map>

namespace fathom::measure {
namespace {

using OverlapOf = std::map<std::string, std::map<std::string, double>>;  // [op][under]

// A record's part before the latest end so far runs under the record that has this end.
OverlapOf walk(const TraceStep& step) {
  std::vector<const TraceRecord*> records;
  for (const TraceRecord& record : step.records) records.push_back(&record);
  std::stable_sort(records.begin(), records.end(), [](const TraceRecord* a, const TraceRecord* b) {
    return a->start_ns < b->start_ns;
  });
  OverlapOf out;
  const TraceRecord* latest = nullptr;
  for (const TraceRecord* record : records) {
    if (latest && latest->end_ns > record->start_ns) {
      const int64_t shared = std::min(record->end_ns, latest->end_ns) - record->start_ns;
      out[record->op][latest->op] += static_cast<double>(shared);
    }
    if (!latest || record->end_ns > latest->end_ns) latest = record;
  }
  return out;
}

double sum(const std::map<std::string, double>& shares) {
  double out = 0;
  for (const auto& [under, ns] : shares) out += ns;
  return out;
}

}  // namespace

std::vector<Overlap> overlaps_of(const TraceStep& lo, const TraceStep& hi) {
  OverlapOf shallow = walk(lo);
  std::vector<Overlap> out;
  for (const auto& [op, shares] : walk(hi)) {
    const auto most =
        std::max_element(shares.begin(), shares.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    out.push_back({op, most->first, sum(shallow[op]), sum(shares)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Overlap& a, const Overlap& b) {
    return a.growth_ns() > b.growth_ns();
  });
  return out;
}

}  // namespace fathom::measure

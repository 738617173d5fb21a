// SPDX-License-Identifier: Apache-2.0
// A made-up kernel whose bits depend on one knob from some depth on, and on another only together
// with a third.
#include "measure/freedom_map.hpp"

#include <gtest/gtest.h>

namespace fathom::measure {
namespace {

const std::vector<Knobs> kVariants{
    {{"splits", "32"}, {"staging", "4"}, {"warps", "1"}},
    {{"splits", "32"}, {"staging", "8"}, {"warps", "1"}},
    {{"splits", "64"}, {"staging", "4"}, {"warps", "1"}},
    {{"splits", "64"}, {"staging", "8"}, {"warps", "1"}},
    {{"splits", "32"}, {"staging", "4"}, {"warps", "4"}},
    {{"splits", "32"}, {"staging", "8"}, {"warps", "4"}},
};

BitEvidence value(float x) { return {.outputs = {{x}}, .width = 1, .problem = ""}; }

const FreedomRow& row_of(const FreedomMap& map, const std::string& knob, const std::string& to) {
  for (const FreedomRow& row : map.rows()) {
    if (row.knob == knob && row.to == to) return row;
  }
  throw std::out_of_range(knob);
}

TEST(FreedomMap, AClassIsTheWorstOfAllSettingsAndDepths) {
  FreedomMap map(kVariants, 0);
  ASSERT_EQ(map.rows().size(), 3u);
  EXPECT_EQ(row_of(map, "staging", "8").n_pairs, 3);
  EXPECT_EQ(row_of(map, "splits", "64").n_pairs, 2);
  EXPECT_EQ(row_of(map, "splits", "64").from, "32");

  map.add({1, 32}, {value(1), value(1), value(1), value(1), value(1), value(1)});
  for (const FreedomRow& row : map.rows()) EXPECT_EQ(row.bit_class, BitClass::free);
  map.add({1, 1641}, {value(1), value(1), value(2), value(2), value(3), value(3)});
  map.add({1, 512}, {value(1), value(1), value(2), value(2), value(3), value(3)});
  EXPECT_EQ(row_of(map, "staging", "8").bit_class, BitClass::free);
  EXPECT_FALSE(row_of(map, "staging", "8").least_depth);
  EXPECT_EQ(row_of(map, "splits", "64").bit_class, BitClass::different);
  EXPECT_EQ(row_of(map, "splits", "64").least_depth, 512);
  EXPECT_EQ(row_of(map, "splits", "64").difference.n_different, 4);

  // Staging is free but for four warps: not free.
  map.add({1, 2000}, {value(1), value(1), value(1), value(1), value(3), value(4)});
  EXPECT_EQ(row_of(map, "staging", "8").bit_class, BitClass::different);
}

TEST(FreedomMap, AVariantThatDiffersFromRunToRunMakesItsChangesSo) {
  FreedomMap map(kVariants, 0);
  std::vector<BitEvidence> all(kVariants.size(), value(1));
  all[2].repeats = false;
  map.add({1, 1}, all);
  EXPECT_EQ(row_of(map, "splits", "64").bit_class, BitClass::nondeterministic);
  EXPECT_EQ(row_of(map, "warps", "4").bit_class, BitClass::free);
}

}  // namespace
}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Who runs under whose time.
#include "measure/overlap.hpp"

#include <gtest/gtest.h>

namespace fathom::measure {
namespace {

TraceRecord record(const char* op, int64_t start_ns, int64_t end_ns) {
  TraceRecord out;
  out.op = op;
  out.start_ns = start_ns;
  out.end_ns = end_ns;
  return out;
}

TEST(Overlap, BelongsToTheOpThatRunsUnderAnother) {
  const TraceStep lo{{record("qkv", 0, 100), record("attn", 100, 150), record("out", 140, 200)}};
  const TraceStep hi{{record("qkv", 0, 100), record("attn", 90, 400), record("out", 140, 420)}};
  const std::vector<Overlap> found = overlaps_of(lo, hi);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].op, "out");
  EXPECT_EQ(found[0].under, "attn");
  EXPECT_EQ(found[0].lo_ns, 10);
  EXPECT_EQ(found[0].hi_ns, 260);
  EXPECT_EQ(found[1].op, "attn");
  EXPECT_EQ(found[1].under, "qkv");
  EXPECT_EQ(found[1].growth_ns(), 10);
}

// A launch within another's time, then one that starts while the longer still runs.
TEST(Overlap, IsUnderTheOneThatEndsLast) {
  const TraceStep step{
      {record("long", 0, 300), record("short", 50, 100), record("next", 200, 350)}};
  const std::vector<Overlap> found = overlaps_of({}, step);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].op, "next");
  EXPECT_EQ(found[0].under, "long");
  EXPECT_EQ(found[0].hi_ns, 100);
  EXPECT_EQ(found[1].op, "short");
  EXPECT_EQ(found[1].hi_ns, 50);
}

TEST(Overlap, StepsWithoutOneHaveNone) {
  const TraceStep step{{record("a", 0, 10), record("b", 10, 20)}};
  EXPECT_TRUE(overlaps_of(step, step).empty());
}

}  // namespace
}  // namespace fathom::measure

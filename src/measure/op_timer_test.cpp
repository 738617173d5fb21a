// SPDX-License-Identifier: Apache-2.0
// Times, calls and costs land on the right op, unbalanced scopes are errors, and watching is cheap.
#include "measure/op_timer.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "measure/clock.hpp"

namespace fathom::measure {
namespace {

void spin_ns(int64_t ns) {
  const int64_t until = now_ns() + ns;
  while (now_ns() < until) {
  }
}

Cost weights(int64_t bytes) {
  Cost cost;
  cost.weight_bytes = bytes;
  return cost;
}

TEST(OpTimer, AccountsForTimeCallsAndCost) {
  OpTimer timer(2);
  const int64_t start = now_ns();
  for (int layer = 0; layer < 2; ++layer) {
    {
      OpScope scope(&timer, {"attn", layer}, weights(100));
      spin_ns(2'000'000);
    }
    OpScope scope(&timer, {"ffn", layer}, weights(1000));
    spin_ns(1'000'000);
  }
  { OpScope scope(&timer, {"head", -1}, weights(7)); }
  spin_ns(500'000);  // outside every op
  const Ledger ledger = timer.ledger(now_ns() - start);

  ASSERT_EQ(ledger.rows.size(), 3u);
  EXPECT_EQ(ledger.rows[0].op, "attn");
  EXPECT_EQ(ledger.rows[0].calls, 2);
  EXPECT_EQ(ledger.rows[0].cost.weight_bytes, 200);
  EXPECT_GE(ledger.rows[0].ns, 4'000'000);
  EXPECT_EQ(ledger.rows[1].cost.weight_bytes, 2000);
  EXPECT_GE(ledger.rows[1].ns, 2'000'000);
  EXPECT_EQ(ledger.rows[2].cost.weight_bytes, 7);
  EXPECT_GE(ledger.difference_ns(), 500'000);
  EXPECT_EQ(ledger.difference_ns() + ledger.scoped_ns(), ledger.wall_ns);

  const std::vector<int64_t> attn = timer.layer_ns("attn");
  ASSERT_EQ(attn.size(), 3u);
  EXPECT_EQ(attn[0], 0);
  EXPECT_GE(attn[1], 2'000'000);
  EXPECT_TRUE(timer.layer_ns("none").empty());
}

TEST(OpTimer, ResetForgetsTimesAndKeepsTheOrder) {
  OpTimer timer(1);
  { OpScope scope(&timer, {"b", 0}, {}); }
  { OpScope scope(&timer, {"a", 0}, {}); }
  timer.reset();
  EXPECT_TRUE(timer.ledger(0).rows.empty());
  { OpScope scope(&timer, {"a", 0}, {}); }
  { OpScope scope(&timer, {"b", 0}, {}); }
  EXPECT_EQ(timer.ledger(0).rows[0].op, "b");
}

TEST(OpTimer, EqualNamesAtDifferentAddressesAreOneOp) {
  const std::string first = "attn", second = "attn";
  OpTimer timer(1);
  { OpScope scope(&timer, {first.c_str(), 0}, {}); }
  { OpScope scope(&timer, {second.c_str(), 0}, {}); }
  EXPECT_EQ(timer.ledger(0).rows.size(), 1u);
}

TEST(OpTimer, UnbalancedScopesAreErrors) {
  OpTimer timer(1);
  EXPECT_THROW(timer.end(), Error);
  timer.begin({"a", 0}, {});
  EXPECT_THROW(timer.begin({"b", 0}, {}), Error);
}

TEST(OpTimer, WatchingCostsLittle) { EXPECT_LT(OpTimer::overhead_ns(), 5'000); }

}  // namespace
}  // namespace fathom::measure

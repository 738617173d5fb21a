// SPDX-License-Identifier: Apache-2.0
// Every round runs every arm once in the recorded order, a seed fixes it, and the warm-up ends.
#include "measure/rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

TEST(Rounds, EachRoundRunsEachArmOnceInItsRecordedOrder) {
  std::vector<int> ran;
  std::vector<Arm> arms;
  for (int i = 0; i < 4; ++i) {
    arms.push_back({std::string(1, static_cast<char>('a' + i)), [&ran, i] {
                      ran.push_back(i);
                      return 10.0 * i + static_cast<double>(ran.size()) / 1000;
                    }});
  }
  const Rounds r = run_rounds(arms, {.n_rounds = 8, .seed = 3, .cancel = nullptr, .progress = {}});
  ASSERT_EQ(r.order.size(), 8u);
  std::set<std::vector<int>> orders;
  for (size_t round = 0; round < 8; ++round) {
    EXPECT_TRUE(std::equal(r.order[round].begin(), r.order[round].end(), ran.begin() + round * 4));
    std::vector<int> seen = r.order[round];
    orders.insert(seen);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3}));
  }
  EXPECT_GT(orders.size(), 3u) << "the order is not random";
  for (size_t arm = 0; arm < 4; ++arm) {
    ASSERT_EQ(r.values[arm].size(), 8u);
    for (double v : r.values[arm]) EXPECT_EQ(static_cast<size_t>(v / 10), arm);
  }
}

TEST(Rounds, SameSeedSameOrder) {
  const std::vector<Arm> arms(5, Arm{"x", [] { return 1.0; }});
  const RoundsOptions seven{.n_rounds = 4, .seed = 7, .cancel = nullptr, .progress = {}};
  RoundsOptions eight = seven;
  eight.seed = 8;
  EXPECT_EQ(run_rounds(arms, seven).order, run_rounds(arms, seven).order);
  EXPECT_NE(run_rounds(arms, seven).order, run_rounds(arms, eight).order);
}

TEST(Rounds, CancelStopsBetweenArms) {
  std::atomic<bool> cancel{false};
  int runs = 0;
  const std::vector<Arm> arms(2, Arm{"x", [&] {
                                       if (++runs == 3) cancel = true;
                                       return 1.0;
                                     }});
  try {
    run_rounds(arms, {.n_rounds = 100, .seed = 1, .cancel = &cancel, .progress = {}});
    FAIL() << "was not stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(runs, 3);
}

TEST(WarmUp, EndsWhenThreeInARowAgree) {
  const std::vector<double> times{100, 50, 30, 21, 20, 20.5, 20};
  size_t at = 0;
  const WarmUp w = warm_up([&] { return times.at(at++); });
  EXPECT_TRUE(w.stable);
  EXPECT_EQ(w.values.size(), 6u);  // 21, 20, 20.5
}

TEST(WarmUp, SaysWhenItNeverSettled) {
  double t = 1;
  const WarmUp w =
      warm_up([&] { return t *= 2; }, {.max_runs = 6, .tolerance = 0.05, .max_seconds = 10});
  EXPECT_FALSE(w.stable);
  EXPECT_EQ(w.values.size(), 6u);
}

}  // namespace
}  // namespace fathom::measure

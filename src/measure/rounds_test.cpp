// SPDX-License-Identifier: Apache-2.0
// Every round runs every arm once in the recorded order, a seed fixes it, and the warm-up ends.
#include "measure/rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "measure/statistics.hpp"

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

TEST(Rounds, SamplesKeepTheirPlaceAndWhatTheMachineDid) {
  int64_t stolen = 0;
  int runs = 0;
  RoundsOptions options{.n_rounds = 3, .seed = 5};
  options.state = [&] {
    SampleState state;
    state.clock_mhz = runs == 4 ? 1500 : 2000;  // right after the fourth run it is low
    state.throttle_bits = runs == 2 ? 0x4 : 0;
    state.steal_ns = stolen;
    return state;
  };
  const Rounds r = run_rounds({{"a",
                                [&] {
                                  if (++runs == 6) stolen += 1'000'000'000;
                                  return 1.0;
                                }},
                               {"b", [&] { return ++runs, 2.0; }}},
                              options);
  ASSERT_EQ(r.samples.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const Sample& s = r.samples[i];
    EXPECT_EQ(s.round, static_cast<int>(i / 2));
    EXPECT_EQ(s.place, static_cast<int>(i % 2));
    EXPECT_EQ(s.arm, r.order[i / 2][i % 2]);
    EXPECT_EQ(s.value, r.values[static_cast<size_t>(s.arm)][static_cast<size_t>(s.round)]);
  }
  EXPECT_EQ(r.samples[1].flags & kFlagThrottled, kFlagThrottled);
  EXPECT_EQ(r.samples[3].flags & kFlagClockDrift, kFlagClockDrift);
  EXPECT_EQ(r.samples[3].clock_mhz, 1500);
  EXPECT_EQ(r.samples[0].flags, 0u);
  EXPECT_EQ(flag_names(kFlagThrottled | kFlagStolen),
            (std::vector<std::string>{"throttled", "stolen"}));
}

// Catalogue 2: what is odd stays a sample.
TEST(Rounds, OutliersAreFlaggedAndKept) {
  int run = 0;
  const Rounds r = run_rounds({{"a", [&] { return ++run == 7 ? 500.0 : 100.0 + run % 3; }}},
                              {.n_rounds = 12, .seed = 1});
  ASSERT_EQ(r.values[0].size(), 12u);
  EXPECT_EQ(r.values[0][6], 500);
  for (const Sample& s : r.samples) {
    EXPECT_EQ(s.flags & kFlagOutlier, s.value == 500 ? kFlagOutlier : 0u);
  }
}

TEST(Rounds, ATwinRunsTheSameArm) {
  int a = 0, b = 0;
  RoundsOptions options{.n_rounds = 7, .seed = 2};
  options.aa_arm = 1;
  const Rounds r =
      run_rounds({{"a", [&] { return 1.0 * ++a; }}, {"b", [&] { return 10.0 * ++b; }}}, options);
  EXPECT_EQ(r.arms, (std::vector<std::string>{"a", "b", "b (A/A)"}));
  EXPECT_EQ(r.aa_arm, 1u);
  EXPECT_EQ(r.aa_twin, 2u);
  EXPECT_EQ(a, 7);
  EXPECT_EQ(b, 14);
  int twin_first = 0;
  for (size_t round = 0; round < 7; ++round) twin_first += r.values[2][round] < r.values[1][round];
  EXPECT_GT(twin_first, 0) << "the twin takes its own place in the order";
  EXPECT_LT(twin_first, 7);
}

TEST(Rounds, StopWhenTheIntervalIsNarrowOrTimeIsUp) {
  Random random(3);
  const auto noisy = [&](double spread) {
    return
        [&random, spread] { return 100 + spread * static_cast<double>(random.below(1000)) / 1000; };
  };
  const Arm ceiling{"ceiling", noisy(200), /*control=*/true};
  RoundsOptions options{.n_rounds = 3, .seed = 1};
  options.until = StopRule{.half_width = 0.01, .max_seconds = 100, .most_rounds = 500};
  const Rounds narrow = run_rounds({{"quiet", noisy(1)}, ceiling}, options);
  EXPECT_EQ(narrow.stop, StopReason::interval);
  EXPECT_EQ(narrow.order.size(), 6u) << "fewer have no interval; the control stops nothing";
  const Rounds wide = run_rounds({{"loud", noisy(30)}}, options);
  EXPECT_EQ(wide.stop, StopReason::interval);
  EXPECT_GT(wide.order.size(), 10u);
  EXPECT_LE(relative_half_width(wide.values[0]), 0.01);
  options.until->most_rounds = 8;
  EXPECT_EQ(run_rounds({{"loud", noisy(300)}}, options).stop, StopReason::most_rounds);
  options.until = StopRule{.half_width = 1e-9, .max_seconds = 0.0, .most_rounds = 500};
  EXPECT_EQ(run_rounds({{"loud", noisy(30)}}, options).stop, StopReason::time_cap);
  EXPECT_EQ(run_rounds({{"quiet", noisy(1)}}, {.n_rounds = 3, .seed = 1}).stop,
            StopReason::fixed_rounds);
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

// SPDX-License-Identifier: Apache-2.0
// Against values worked by hand.
#include "measure/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, QuantilesInterpolateBetweenOrderStatistics) {
  const Samples x{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(median(x), 2.5);
  EXPECT_DOUBLE_EQ(quantile(x, 0.0), 1);
  EXPECT_DOUBLE_EQ(quantile(x, 1.0), 4);
  EXPECT_DOUBLE_EQ(quantile(x, 0.25), 1.75);  // 0.75 of the way from 1 to 2
  EXPECT_DOUBLE_EQ(median(Samples{7}), 7);
}

TEST(Statistics, SpreadOfKnownSamples) {
  const Samples x{2, 4, 4, 4, 5, 5, 7, 9};  // mean 5, squares 9+1+1+1+0+0+4+16 = 32
  EXPECT_DOUBLE_EQ(mean(x), 5);
  EXPECT_DOUBLE_EQ(sample_stddev(x), std::sqrt(32.0 / 7));
  // median 4.5, distances 2.5 .5 .5 .5 .5 .5 2.5 4.5, their median .5
  EXPECT_DOUBLE_EQ(median_absolute_deviation(x), 0.5);
  EXPECT_DOUBLE_EQ(sample_stddev(Samples{3}), 0);
}

TEST(Statistics, HodgesLehmannIsTheMedianOfWalshAverages) {
  // Walsh averages of 1, 2, 6: 1, 1.5, 3.5, 2, 4, 6 -> sorted 1 1.5 2 3.5 4 6 -> median 2.75
  EXPECT_DOUBLE_EQ(hodges_lehmann(Samples{1, 2, 6}), 2.75);
}

TEST(Statistics, SignedRankIntervalIsExactForSmallSamples) {
  // n = 6: P(T <= 0) = 1/64 < 0.025 <= P(T <= 1) = 2/64, so the extremes of the 21 averages.
  const Samples six{1, 2, 3, 4, 5, 6};
  EXPECT_DOUBLE_EQ(hodges_lehmann_interval(six).lo, 1);
  EXPECT_DOUBLE_EQ(hodges_lehmann_interval(six).hi, 6);
  // n = 10: P(T <= 8) = 25/1024 < 0.025 <= P(T <= 9) = 33/1024: the 9th average from either end.
  // Averages of 1..10 are k/2; 1 1.5 2 2 2.5 2.5 3 3 3 ... -> the ninth is 3, mirrored 8.
  const Samples ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_DOUBLE_EQ(hodges_lehmann_interval(ten).lo, 3);
  EXPECT_DOUBLE_EQ(hodges_lehmann_interval(ten).hi, 8);
}

TEST(Statistics, SignedRankIntervalMeetsTheNormalApproximation) {
  Samples x;
  for (int i = 1; i <= 26; ++i) x.push_back(i);
  const Interval normal = hodges_lehmann_interval(x);
  x.pop_back();
  const Interval exact = hodges_lehmann_interval(x);
  EXPECT_NEAR(normal.lo, exact.lo, 1.0);
  EXPECT_NEAR(normal.hi - 1, exact.hi, 1.0);
  EXPECT_LT(normal.lo, 13.5);
  EXPECT_GT(normal.hi, 13.5);
}

TEST(Statistics, TheilSenIgnoresAWildPoint) {
  const Samples x{0, 1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(theil_sen_slope(x, Samples{1, 3, 5, 7, 1000}), 2.0);
}

TEST(Statistics, SlopeIntervalIsExactForSmallSamples) {
  // Of 6! = 720 orders 1, 5, 14 have 0, 1, 2 inversions: P(K <= 1) = 6/720 < 0.025 <= 20/720, so
  // the second slope from either end. Slopes of y = x with the last point raised by 10: ten of 1,
  // and 3, 3.5, 4.333, 6, 11.
  const Samples x{0, 1, 2, 3, 4, 5};
  const Interval raised = theil_sen_interval(x, Samples{0, 1, 2, 3, 4, 15});
  EXPECT_DOUBLE_EQ(raised.lo, 1);
  EXPECT_DOUBLE_EQ(raised.hi, 6);
  const Interval level = theil_sen_interval(x, Samples{3, 1, 2, 3, 2, 1});
  EXPECT_LT(level.lo, 0);
  EXPECT_GT(level.hi, 0);
}

TEST(Statistics, ShiftOfTwoSamplesAndItsExactInterval) {
  // Of the 252 orders of 5 and 5 values 4 have U <= 2 (0.016) and 7 U <= 3 (0.028): the third
  // difference from either end. Differences of 11..15 and 1..5: 6, 7 7, 8 8 8, ... 14.
  const Samples x{1, 2, 3, 4, 5}, y{11, 12, 13, 14, 15};
  EXPECT_DOUBLE_EQ(shift(x, y), 10);
  EXPECT_DOUBLE_EQ(shift_interval(x, y).lo, 7);
  EXPECT_DOUBLE_EQ(shift_interval(x, y).hi, 13);
  EXPECT_DOUBLE_EQ(rank_sum_p(x, y), 2.0 / 252);
  EXPECT_DOUBLE_EQ(rank_sum_p(x, Samples{2.5}), 1) << "in the middle";
  EXPECT_GT(rank_sum_p(x, Samples{1, 2, 3, 4, 5}), 0.9) << "ties";
}

TEST(Statistics, ShiftIntervalMeetsTheNormalApproximation) {
  Samples x, y;
  for (int i = 0; i < 26; ++i) {
    x.push_back(i);
    y.push_back(i + 0.5);
  }
  const Interval normal = shift_interval(x, y);
  x.pop_back();
  y.pop_back();
  const Interval exact = shift_interval(x, y);
  EXPECT_NEAR(normal.lo, exact.lo, 1);
  EXPECT_NEAR(normal.hi, exact.hi, 1);
}

TEST(Statistics, SignedRankProbabilities) {
  EXPECT_DOUBLE_EQ(signed_rank_p(Samples{1, 2, 3, 4, 5, 6}), 2.0 / 64);
  // Positive ranks 1 + 2 + 3 = 6 of 10; subsets of 1..4 with a sum of at most 4: 7 of 16.
  EXPECT_DOUBLE_EQ(signed_rank_p(Samples{1, 2, 3, -4}), 14.0 / 16);
  EXPECT_DOUBLE_EQ(signed_rank_p(Samples{0, 0}), 1);
  EXPECT_NEAR(signed_rank_p(Samples{1, 1, 1, 1, 1, 1, -1}), 0.074, 0.01) << "ties: normal";
}

TEST(Statistics, HolmMultipliesByTheHypothesesThatAreLeft) {
  EXPECT_EQ(holm(Samples{0.01, 0.04, 0.03}), (Samples{0.03, 0.06, 0.06}));
  EXPECT_EQ(holm(Samples{0.6, 0.9}), (Samples{1, 1}));
  EXPECT_TRUE(holm({}).empty());
}

TEST(Statistics, RatioOfMediansKeepsRoundsTogether) {
  Samples a, b;
  for (int i = 0; i < 12; ++i) {
    a.push_back(100 + (i * 37) % 50);  // noise that both arms of a round see
    b.push_back(1.25 * a.back());
  }
  const Interval percentile = bootstrap_ratio(a, b, 1);
  EXPECT_NEAR(percentile.lo, 1.25, 1e-12);
  EXPECT_NEAR(percentile.hi, 1.25, 1e-12);
}

// What 95 % means: the interval holds the true ratio in about 95 of 100 skewed experiments.
TEST(Statistics, BcaIntervalOfTheRatioCovers) {
  Random random(5);
  const auto exponential = [&] {
    return -std::log((static_cast<double>(random.below(1 << 30)) + 0.5) / (1 << 30));
  };
  int covered = 0;
  constexpr int kExperiments = 200;
  for (int experiment = 0; experiment < kExperiments; ++experiment) {
    Samples a, b;
    for (size_t round = 0; round < kBcaSamples + 5; ++round) {
      a.push_back(10 + exponential());
      b.push_back(1.1 * (10 + exponential()));
    }
    const Interval ci = bootstrap_ratio(a, b, static_cast<uint64_t>(experiment), 0.95, 400);
    covered += ci.lo <= 1.1 && 1.1 <= ci.hi;
    EXPECT_LT(ci.hi - ci.lo, 0.3);
  }
  EXPECT_GE(covered, kExperiments * 88 / 100);
}

TEST(Statistics, BootstrapRepeatsByItsSeedAndCoversTheMedian) {
  Samples x;
  for (int i = 0; i < 21; ++i) x.push_back(100 + (i * 8) % 21);
  const Interval a = bootstrap_median(x, 42), b = bootstrap_median(x, 42);
  EXPECT_EQ(a.lo, b.lo);
  EXPECT_EQ(a.hi, b.hi);
  EXPECT_LE(a.lo, 110);
  EXPECT_GE(a.hi, 110);
  EXPECT_GT(a.hi, a.lo);
  // The binomial interval of a median at n = 21 is the 6th to the 16th value: 105 to 115.
  EXPECT_NEAR(a.lo, 105, 1);
  EXPECT_NEAR(a.hi, 115, 1);
}

TEST(Statistics, BootstrapOfAnEvenCountAveragesTheMiddlePair) {
  const Interval two = bootstrap_median(Samples{1, 3}, 7);
  EXPECT_DOUBLE_EQ(two.lo, 1);
  EXPECT_DOUBLE_EQ(two.hi, 3);
}

TEST(Statistics, OutliersAreFlaggedNotRemoved) {
  const Samples x{10, 11, 10, 12, 11, 50};
  EXPECT_EQ(outliers(x), (std::vector<size_t>{5}));
  const Summary s = summarise(x, 1);
  EXPECT_EQ(s.n, 6u);
  EXPECT_EQ(s.n_outliers, 1u);
  EXPECT_DOUBLE_EQ(s.max, 50);
}

TEST(Statistics, NoSamplesIsAnError) {
  EXPECT_THROW(median({}), Error);
  EXPECT_THROW(summarise({}, 1), Error);
}

}  // namespace
}  // namespace fathom::measure

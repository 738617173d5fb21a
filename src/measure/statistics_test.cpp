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

// SPDX-License-Identifier: Apache-2.0
// Tails and components of variance against SciPy 1.17.1 and NumPy 2.4.6.
#include "measure/spread.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

// x = [float((i * 7919) % 1009)**1.5 / 50 for i in range(1, 121)]
std::vector<double> skewed() {
  std::vector<double> out;
  for (int i = 1; i <= 120; ++i) out.push_back(std::pow((i * 7919) % 1009, 1.5) / 50);
  return out;
}

// scipy.stats.mstats.hdquantiles(x, [p])
TEST(Spread, HarrellDavisAgreesWithSciPy) {
  const std::vector<double> x = skewed();
  EXPECT_NEAR(harrell_davis(x, 0.05), 9.324229571672136, 1e-9);
  EXPECT_NEAR(harrell_davis(x, 0.5), 235.39083529717036, 1e-9);
  EXPECT_NEAR(harrell_davis(x, 0.9), 553.3518679012291, 1e-9);
  const std::vector<double> few{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  EXPECT_NEAR(harrell_davis(few, 0.5), 3.669906355816778, 1e-12);
  EXPECT_NEAR(harrell_davis(few, 0.9), 7.6852357743071895, 1e-12);
  EXPECT_DOUBLE_EQ(harrell_davis(std::vector<double>{7}, 0.9), 7);
}

TEST(Spread, HarrellDavisOfManySamplesIsTheQuantile) {
  std::vector<double> uniform;
  for (int i = 1; i <= 20'000; ++i) uniform.push_back((i * 7919LL) % 20'011);
  EXPECT_NEAR(harrell_davis(uniform, 0.99) / quantile(uniform, 0.99), 1, 1e-3);
}

TEST(Spread, ATailNeedsTenSamplesBeyondIt) {
  std::vector<double> x(99, 1.0);
  EXPECT_FALSE(tail_quantile(x, 0.9).has_value());
  x.push_back(1.0);
  EXPECT_TRUE(tail_quantile(x, 0.9).has_value());
  EXPECT_FALSE(tail_quantile(x, 0.99).has_value());
  x.resize(1000, 1.0);
  EXPECT_NEAR(tail_quantile(x, 0.99).value(), 1, 1e-12);
}

// d[p][r][i] = 100 + 10 ((37 p) % 11) + 3 ((5 p + 7 r) % 13) + 0.5 ((3 p + 5 r + 11 i) % 17)
std::vector<double> nested() {
  std::vector<double> out;
  for (int p = 0; p < 3; ++p) {
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 5; ++i) {
        out.push_back(100 + 10 * ((37 * p) % 11) + 3 * ((5 * p + 7 * r) % 13) +
                      0.5 * ((3 * p + 5 * r + 11 * i) % 17));
      }
    }
  }
  return out;
}

// With NumPy: MSp = 20 sum((mean over r, i - mean)^2) / 2, MSr = 5 sum((mean over i - mean over r,
// i)^2) / 9, MSi = sum((d - mean over i)^2) / 48; (MSp - MSr) / 20, (MSr - MSi) / 5, MSi.
TEST(Spread, ComponentsOfVarianceAgreeWithNumPy) {
  const size_t counts[] = {3, 4, 5};
  EXPECT_THAT(
      variance_components(nested(), counts),
      ElementsAre(DoubleNear(2007.9477777777774, 1e-8), DoubleNear(163.07805555555564, 1e-8),
                  DoubleNear(7.058333333333333, 1e-9)));
}

TEST(Spread, TheLevelThatIsMadeNoisyIsFound) {
  const size_t counts[] = {6, 10, 8};
  for (const size_t noisy : {size_t{0}, size_t{1}, size_t{2}}) {
    Random random(5);
    const auto unit = [&] { return static_cast<double>(random.below(1000)) / 500 - 1; };
    std::vector<double> samples;
    for (size_t p = 0; p < counts[0]; ++p) {
      const double process = unit() * (noisy == 0 ? 50 : 1);
      for (size_t r = 0; r < counts[1]; ++r) {
        const double round = unit() * (noisy == 1 ? 50 : 1);
        for (size_t i = 0; i < counts[2]; ++i) {
          samples.push_back(1000 + process + round + unit() * (noisy == 2 ? 50 : 1));
        }
      }
    }
    const std::vector<double> components = variance_components(samples, counts);
    for (size_t level = 0; level < 3; ++level) {
      if (level == noisy) continue;
      EXPECT_LT(components[level], 0.2 * components[noisy]) << noisy << level;
    }
    EXPECT_EQ(level_to_raise(components, counts), noisy);
  }
}

TEST(Spread, ALevelThatWasNotRepeatedHasNoComponent) {
  const size_t counts[] = {1, 3, 2};
  const std::vector<double> samples{1, 2, 11, 12, 21, 22};
  // Of rounds: (MSr - MSi) / 2 with MSr = 2 * 200 / 2, MSi = 1.5 / 3.
  EXPECT_THAT(variance_components(samples, counts),
              ElementsAre(0, DoubleNear(99.75, 1e-12), DoubleNear(0.5, 1e-12)));
  EXPECT_EQ(level_to_raise(variance_components(samples, counts), counts), 1u);
}

}  // namespace
}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Series whose course we made: each is called what it is, over many draws of noise.
#include "measure/steady_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

// Roughly normal noise of sigma 1.
double noise(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.below(1 << 20)) / (1 << 20);
  return sum;
}

std::vector<double> series(size_t n, uint64_t seed, const std::function<double(double)>& level,
                           double sigma = 0.5) {
  Random random(seed);
  std::vector<double> x;
  for (size_t i = 0; i < n; ++i) {
    x.push_back(level(static_cast<double>(i)) + sigma * noise(random));
  }
  return x;
}

// How many of 100 draws are called `expected`.
int called(Steadiness expected, size_t n, const std::function<double(double)>& level) {
  int count = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    count += find_steady_state(series(n, seed, level)).steadiness == expected;
  }
  return count;
}

TEST(SteadyState, EachCourseIsCalledWhatItIs) {
  EXPECT_GE(called(Steadiness::flat, 40, [](double) { return 100; }), 95);
  EXPECT_GE(called(Steadiness::warm_up, 40, [](double i) { return i < 8 ? 120 : 100; }), 95);
  EXPECT_GE(called(Steadiness::warm_up, 60, [](double i) { return 100 + 50 * std::exp(-i / 3); }),
            90);
  EXPECT_GE(called(Steadiness::slowdown, 40, [](double i) { return i < 20 ? 100 : 115; }), 95);
  EXPECT_GE(called(Steadiness::none, 40, [](double i) { return i < 36 ? 100 : 120; }), 95);
  EXPECT_GE(called(Steadiness::none, 40, [](double i) { return 100 + i; }), 95);
}

TEST(SteadyState, FindsWhereTheLevelChanged) {
  const SteadyState state =
      find_steady_state(series(50, 3, [](double i) { return i < 12 ? 130 : 100; }));
  ASSERT_EQ(state.starts.size(), 2u);
  EXPECT_NEAR(static_cast<double>(state.starts[1]), 12, 1);
  EXPECT_NEAR(state.levels[0], 130, 1);
  EXPECT_NEAR(state.levels[1], 100, 1);
  EXPECT_EQ(state.steady_from(), state.starts[1]);
}

TEST(SteadyState, ASpikeIsNoLevel) {
  std::vector<double> x = series(40, 1, [](double) { return 100; });
  x[0] = 400;
  x[20] = 900;
  x[21] = 800;
  x[39] = 300;
  const SteadyState state = find_steady_state(x);
  EXPECT_EQ(state.steadiness, Steadiness::flat) << state.why;
}

TEST(SteadyState, NoNoiseAtAll) {
  EXPECT_EQ(find_steady_state(std::vector<double>(20, 5.0)).steadiness, Steadiness::flat);
  std::vector<double> step(20, 5.0);
  for (size_t i = 0; i < 5; ++i) step[i] = 6;
  EXPECT_EQ(find_steady_state(step).steadiness, Steadiness::warm_up);
}

TEST(SteadyState, FewValuesAreNotJudged) {
  const SteadyState state = find_steady_state(std::vector<double>(kSteadySamples - 1, 1.0));
  EXPECT_FALSE(state.steadiness.has_value());
  EXPECT_EQ(state.steady_from(), 0u);
  EXPECT_FALSE(state.why.empty());
}

}  // namespace
}  // namespace fathom::measure

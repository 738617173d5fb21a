// SPDX-License-Identifier: Apache-2.0
// Differences that we put there are found, none is found where there is none, and what cannot be
// told is said to be that.
#include "measure/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

using testing::HasSubstr;

// 1 + noise of about `sigma`.
double wobble(Random& random, double sigma) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.below(1 << 20)) / (1 << 20);
  return 1 + sigma * sum;
}

struct Arms {
  std::vector<double> a, b, twin;
};
// Rounds on a machine that slowly gets slower, with noise that all arms of a round share.
Arms rounds(size_t n, uint64_t seed, double ratio) {
  Random random(seed);
  Arms out;
  for (size_t round = 0; round < n; ++round) {
    const double machine =
        (1 + 0.3 * static_cast<double>(round) / static_cast<double>(n)) * wobble(random, 0.05);
    out.a.push_back(1e6 * machine * wobble(random, 0.005));
    out.b.push_back(ratio * 1e6 * machine * wobble(random, 0.005));
    out.twin.push_back(1e6 * machine * wobble(random, 0.005));
  }
  return out;
}

Comparison judged(Comparison c) {
  std::vector<Comparison> family{c};
  judge(family);
  return family[0];
}

TEST(Comparison, PairsSeeThroughADriftThatSeparateRunsDoNot) {
  const Arms arms = rounds(20, 1, 0.97);
  const NoiseFloor noise = noise_floor(arms.a, arms.twin);
  EXPECT_LT(noise.floor, 0.01);
  const Comparison paired = judged(compare_paired(arms.a, arms.b, noise.floor));
  EXPECT_EQ(paired.verdict, Verdict::faster) << paired.why;
  EXPECT_NEAR(paired.ratio, 0.97, 0.01);
  const Comparison unpaired = judged(compare_unpaired(arms.a, arms.b, noise.floor));
  EXPECT_EQ(unpaired.verdict, Verdict::cannot_tell) << "the drift is as large as the difference";
  EXPECT_GT(unpaired.ci.hi - unpaired.ci.lo, 5 * (paired.ci.hi - paired.ci.lo));
}

TEST(Comparison, VerdictsOfKnownDifferences) {
  EXPECT_EQ(judged(compare_paired(rounds(20, 2, 1.05).a, rounds(20, 2, 1.05).b, 0.01)).verdict,
            Verdict::slower);
  const Arms equal = rounds(40, 3, 1.0);
  EXPECT_EQ(judged(compare_paired(equal.a, equal.b, 0.005)).verdict, Verdict::same);
  const Comparison below = judged(compare_paired(equal.a, rounds(40, 3, 1.02).b, 0.05));
  EXPECT_EQ(below.verdict, Verdict::cannot_tell) << "2 % of a floor of 5 %";
  EXPECT_THAT(below.why, HasSubstr("the noise floor is 5.00 %"));
}

// Abedi and Brecht 2017: identical systems must not be called different.
TEST(Comparison, IdenticalArmsAreRarelyCalledDifferent) {
  int different = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Arms arms = rounds(12, 100 + seed, 1.0);
    const Verdict verdict =
        judged(compare_paired(arms.a, arms.b, noise_floor(arms.a, arms.twin).floor)).verdict;
    different += verdict == Verdict::faster || verdict == Verdict::slower;
  }
  EXPECT_LE(different, 9) << "of 300";
}

TEST(Comparison, FewRoundsCannotTell) {
  const Arms arms = rounds(5, 1, 0.5);
  const Comparison c = judged(compare_paired(arms.a, arms.b, 0.01));
  EXPECT_EQ(c.verdict, Verdict::cannot_tell);
  EXPECT_THAT(c.why, HasSubstr("5 rounds, 6 are needed"));
  const Comparison three =
      judged(compare_unpaired(std::vector<double>{1, 2, 3}, std::vector<double>{9, 8, 7}, 0.01));
  EXPECT_EQ(three.verdict, Verdict::cannot_tell);
}

TEST(Comparison, ManyComparisonsNeedMoreEvidence) {
  const Arms arms = rounds(6, 1, 0.9);  // 6 pairs: p = 2/64 at best
  const Comparison alone = judged(compare_paired(arms.a, arms.b, 0.01));
  EXPECT_EQ(alone.verdict, Verdict::faster) << alone.why;
  std::vector<Comparison> family(3, compare_paired(arms.a, arms.b, 0.01));
  judge(family);
  EXPECT_EQ(family[0].verdict, Verdict::cannot_tell);
  EXPECT_THAT(family[0].why, HasSubstr("of 3 compared"));
  EXPECT_EQ(family[0].family, 3u);
}

TEST(Comparison, ABiasBetweenTwinsIsSeen) {
  Arms arms = rounds(20, 7, 1.0);
  EXPECT_TRUE(noise_floor(arms.a, arms.twin).unbiased);
  for (double& t : arms.twin) t *= 1.04;
  const NoiseFloor biased = noise_floor(arms.a, arms.twin);
  EXPECT_FALSE(biased.unbiased);
  EXPECT_GT(biased.floor, 0.03);
}

TEST(Comparison, TimesMustBePositive) {
  EXPECT_THROW(compare_paired(std::vector<double>{0}, std::vector<double>{1}, 0), Error);
}

}  // namespace
}  // namespace fathom::measure

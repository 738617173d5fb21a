// SPDX-License-Identifier: Apache-2.0
// Predictions from the launches alone, what is said of the measured change beside them, and knobs
// that change nothing or do not exist.
#include "cli/confirm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"

namespace fathom::cli {
namespace {

using testing::HasSubstr;

std::vector<OpVariant::Knob> seed(int splits, int staging, int values, int warps, int window) {
  return {{"splits", splits},
          {"staging", staging},
          {"values", values},
          {"warps", warps},
          {"window", window}};
}

// 1,642 tokens are 52 rows a split: 13 batches of four, and 52 rows whose values wait.
TEST(ChainedWaits, FollowTheSlowestWarp) {
  EXPECT_EQ(chained_waits(seed(32, 4, 0, 1, 4), 1642, 0.21), 13 + 52);
  EXPECT_EQ(chained_waits(seed(32, 4, 1, 1, 4), 1642, 0.21), 13);
  EXPECT_EQ(chained_waits(seed(32, 16, 0, 1, 4), 1642, 0.21), 4 + 52);
  EXPECT_EQ(chained_waits(seed(64, 4, 0, 1, 4), 1642, 0.42), 7 + 26);
  // Eight warps of 32 rows each: the first has 32, the second the other 20.
  EXPECT_EQ(chained_waits(seed(32, 4, 0, 8, 256), 1642, 0.9), 8 + 32);
  // 411 rows are a whole window of 256 and 155 rows more.
  EXPECT_EQ(chained_waits(seed(4, 4, 0, 8, 256), 1642, 0.5), 16 + 64);
  EXPECT_EQ(chained_waits(seed(32, 4, 0, 1, 4), 2, 0.21), 1 + 1);
  EXPECT_EQ(chained_waits(seed(64, 4, 0, 1, 4), 1642, 1.7), (7 + 26) * 1.7) << "more than a wave";
  EXPECT_EQ(chained_waits({{"splits", 32}}, 1642, 1), 0) << "another family";
}

void no_change(OpTable&) {}

std::span<const OpVariant> variants() {
  static const std::vector<OpVariant> kAll{
      {"attn", "seed", seed(32, 4, 0, 1, 4), no_change},
      {"attn", "seed:splits=64", seed(64, 4, 0, 1, 4), no_change},
      {"attn", "seed:values=1", seed(32, 4, 1, 1, 4), no_change},
      {"attn", "seed:splits=64,values=1", seed(64, 4, 1, 1, 4), no_change},
      {"attn", "other", {{"tiles", 4}}, no_change}};
  return {kAll.data(), kAll.size()};
}

class KnobOfAVariant : public testing::Test {
 protected:
  KnobOfAVariant() : backend_(cpu_backend()) {
    backend_.variants = variants;
    base_.backend = "device";
    base_.variant = "seed";
    info_.in_host_memory = false;
  }
  Knob parse(const std::string& text) { return parse_knob(text, base_, info_, backend_); }
  std::string refusal(const std::string& text) {
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "";
  }
  Backend backend_;
  OpenOptions base_;
  ModelInfo info_;
};

TEST_F(KnobOfAVariant, IsTheVariantThatRunsWithThisChanged) {
  EXPECT_EQ(parse("splits=64").variant_after, "seed:splits=64");
  EXPECT_EQ(parse("values=1,splits=64").variant_after, "seed:splits=64,values=1");
  EXPECT_EQ(parse("variant=seed:values=1").variant_after, "seed:values=1");
  EXPECT_EQ(parse("variant=production").variant_after, "production");
  base_.variant = "seed:splits=64";
  const Knob knob = parse("values=1");
  EXPECT_EQ(knob.variant_before, "seed:splits=64");
  EXPECT_EQ(knob.variant_after, "seed:splits=64,values=1");
  OpenOptions changed = base_;
  knob.apply(changed);
  EXPECT_EQ(changed.variant, "seed:splits=64,values=1");
  EXPECT_EQ(parse("cache-type=q8_0").variant_after, "seed:splits=64");
}

TEST_F(KnobOfAVariant, PredictsByTheLoadsInARowOrNothing) {
  const LaunchState launches{{2, 1642}, 0.21, 0.42};
  EXPECT_EQ(parse("values=1").exposed_factors(launches), (std::array{12.0 / 63, 1.0}));
  EXPECT_EQ(parse("splits=64").exposed_factors(launches), (std::array{31.0 / 63, 1.0}));
  EXPECT_EQ(parse("variant=production").exposed_factors(launches), (std::array{0.0, 1.0}));
  EXPECT_EQ(parse("variant=other").exposed_factors(launches), (std::array{0.0, 1.0}));
}

TEST_F(KnobOfAVariant, IsRefusedInOneLine) {
  EXPECT_THAT(refusal("splits=32"), HasSubstr("the engine runs seed already"));
  EXPECT_THAT(refusal("splits=7"), HasSubstr("no variant"));
  EXPECT_THAT(refusal("tiles=4"), HasSubstr("no variant"));
  EXPECT_THAT(refusal("splits"), HasSubstr("cache-type=VALUE, variant=NAME"));
  base_.variant.clear();
  EXPECT_THAT(refusal("splits=64"), HasSubstr("production's kernels have no knobs"));
  EXPECT_THAT(refusal("variant=production"), HasSubstr("the engine runs production already"));
}

measure::OpGrowth growth_of(const std::string& op, double lo, double hi) {
  measure::OpGrowth out;
  out.op = op;
  out.lo_ns = lo;
  out.hi_ns = hi;
  out.growth = {hi - lo, {hi - lo - 5, hi - lo + 5}};
  return out;
}

// attn grows from 100 to lo + growth, 200 of that are bytes; the step by 20 more.
report::AttributionReport report_with(double growth) {
  report::AttributionReport out;
  out.attribution.ops = {growth_of("attn", 100, 100 + growth), growth_of("head", 50, 70)};
  out.attribution.closure.growth = {growth + 20, {growth + 10, growth + 30}};
  out.attribution.closure.limit_ns = 15;
  measure::Decomposition parts;
  parts.op = "attn";
  parts.lo = {.ns = 100, .bytes_ns = 10, .compute_ns = {}};
  parts.hi = {.ns = 100 + growth, .bytes_ns = 210, .compute_ns = {}};
  out.decompositions = {parts};
  return out;
}

TEST_F(KnobOfAVariant, SaysWhatWentWhereThePredictionLies) {
  const LaunchState launches{{2, 1642}, 0.21, 0.21};
  const report::AttributionReport base = report_with(1200), changed = report_with(700);
  report::Confirmation c = confirmation_of(parse("values=1"), base, changed, launches);
  ASSERT_EQ(c.effects.size(), 2u);
  // Bytes 200, exposed 1,000 of which 12/63 stay at least.
  EXPECT_NEAR((*c.effects[0].predicted_ns)[0], 200 + 1000 * 12.0 / 63, 1e-9);
  EXPECT_NEAR((*c.effects[0].predicted_ns)[1], 1200, 1e-9);
  EXPECT_THAT(c.gaps[0], HasSubstr("Every prediction holds"));
  EXPECT_THAT(c.gaps[1], HasSubstr("(62 %)")) << "500 of 810 went";
  c.probed_op = "attn";
  c.probed = {{"hot", 30, 24, {29, 31}, {23, 25}}, {"cold", 36, 20, {35, 37}, {19, 21}}};
  name_gaps(c, base, changed);
  EXPECT_NEAR(c.engine_ratio, 800.0 / 1300, 1e-12);
  EXPECT_THAT(c.gaps, testing::Contains(HasSubstr("the cache's temperature")));
  EXPECT_THAT(c.gaps.back(), HasSubstr("within what the sums may miss"));
}

TEST_F(KnobOfAVariant, NamesTheGapWhereThePredictionFails) {
  const LaunchState launches{{2, 1642}, 0.21, 0.21};
  const report::AttributionReport base = report_with(1200);
  report::AttributionReport slower = report_with(1500);
  slower.attribution.closure.growth = {1800, {1790, 1810}};
  slower.gates = {{.id = "additivity", .pass = false, .value = {}, .limit = {}, .why = "missed"}};
  report::Confirmation c = confirmation_of(parse("values=1"), base, slower, launches);
  EXPECT_THAT(c.gaps, testing::Contains(HasSubstr("the other way")));
  EXPECT_THAT(c.gaps, testing::Not(testing::Contains(HasSubstr("Every prediction"))));
  c.probed_op = "attn";
  c.probed = {{"hot", 30, 24, {29, 31}, {23, 25}}};
  name_gaps(c, base, slower);
  EXPECT_THAT(c.gaps, testing::Contains(HasSubstr("less than alone")));
  EXPECT_THAT(c.gaps, testing::Contains(HasSubstr("in the other ops and the idle time")));
  EXPECT_THAT(c.gaps, testing::Contains(HasSubstr("fails gate additivity: missed")));
}

}  // namespace
}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Programs of known truth, measured by the code that measures models: each is attributed right, or
// refused.
#include "measure/attribution.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string_view>

#include "base/error.hpp"
#include "measure/diagnosis.hpp"
#include "measure/observation_json.hpp"
#include "tests/support/synthetic_program.hpp"

namespace fathom::measure {
namespace {

using test::SyntheticProgram;
using testing::HasSubstr;

constexpr int kLayers = 4;

// Four layers of qkv, attn, ffn; attn grows from 20 to 60 us in each, all else is flat.
SyntheticProgram model() {
  SyntheticProgram program;
  program.ops.push_back({"embed", -1, {2'000, 2'000}, 0});
  for (int layer = 0; layer < kLayers; ++layer) {
    program.ops.push_back({"qkv", layer, {50'000, 50'000}, 300});
    program.ops.push_back({"attn", layer, {20'000, 60'000}, 300});
    program.ops.push_back({"ffn", layer, {100'000, 100'000}, 300});
  }
  return program;
}

Observation observed(SyntheticProgram& program, int rounds = 40, size_t n_depths = 2) {
  OpTrace trace(20'000, program.clock());
  ObserveOptions options;
  options.n_depths = n_depths;
  options.source = &trace;
  options.block_ns = 3e6;
  options.min_rounds = options.max_rounds = rounds;
  options.clock = program.clock();
  return observe(program, options);
}

Attribution attributed(SyntheticProgram& program, int rounds = 40) {
  const Observation observation = observed(program, rounds);
  EXPECT_EQ(observation.problem, "");
  return attribute(observation, {65, 1642});
}

double exact_sum(const Attribution& a) {
  double sum = a.gaps.value;
  for (const OpGrowth& op : a.ops) sum += op.growth.value;
  return sum;
}

TEST(Attribution, FindsTheOpThatGrowsAndProvesTheOthersFlat) {
  SyntheticProgram program = model();
  const Attribution a = attributed(program);
  EXPECT_TRUE(a.closure.closes);
  EXPECT_TRUE(a.closure.precise);
  EXPECT_NEAR(a.closure.growth.value, kLayers * 40'000, 1);
  EXPECT_EQ(a.ops.front().op, "attn");
  EXPECT_NEAR(a.ops.front().growth.value, kLayers * 40'000, 1);
  EXPECT_EQ(a.ops.front().launches_hi, kLayers);
  EXPECT_THAT(a.ops.front().layer_growth_ns, testing::Each(testing::DoubleNear(40'000, 1)));
  for (size_t i = 1; i < a.ops.size(); ++i) EXPECT_NEAR(a.ops[i].growth.value, 0, 1);
  EXPECT_NEAR(a.gaps.value, 0, 1);
  EXPECT_NEAR(a.overhead[0], 13 * 40.0 / 682'000, 1e-4);
}

// A device with a queue: the host spends `launch_ns` a step, more when it is watched, and is let go
// on when the step kAhead before is done.
class QueueProgram : public StepProgram {
 public:
  static constexpr int kAhead = 4;
  int64_t device_ns[2] = {200'000, 210'000};
  int64_t launch_ns = 20'000, watched_launch_ns = 150'000, clock_ns = 90'000;

  Clock clock() {
    return [this] { return now_; };
  }
  void step(size_t depth) override {
    now_ += watched_ ? watched_launch_ns : launch_ns;
    device_end_ = std::max(device_end_, now_) + device_ns[depth];
    ends_.push_back(device_end_);
    if (ends_.size() <= kAhead) return;
    now_ = std::max(now_, ends_.front());
    ends_.pop_front();
  }
  int n_ahead() const override { return kAhead; }
  void wait() override {
    now_ = std::max(now_, device_end_);
    ends_.clear();
  }
  void watch(OpScopeSink* scopes) override { watched_ = scopes != nullptr; }
  // Of an idle device it is another one, and asking takes time.
  double clock_speed() override {
    const bool busy = device_end_ > now_;
    now_ += clock_ns;
    return busy ? 1980 : 345;
  }

 private:
  bool watched_ = false;
  int64_t now_ = 1'000'000, device_end_ = 0;
  std::deque<int64_t> ends_;
};

TEST(Observe, StepsThatRunAheadTakeTheDevicesTimeAndNotTheHosts) {
  QueueProgram program;
  ObserveOptions options;
  options.block_ns = 3e6;
  options.min_rounds = options.max_rounds = 6;
  options.clock = program.clock();
  const Observation observation = observe(program, options);
  for (size_t depth : {0, 1}) {
    for (const auto& pair : observation.depths[depth].untraced) {
      for (const UntracedBlock& block : pair) {
        ASSERT_GT(block.steps_ns.size(), 5u);
        EXPECT_THAT(block.steps_ns, testing::Each(program.device_ns[depth]))
            << "reading the clock is in no step";
        EXPECT_EQ(block.clock, 1980) << "read while the device is busy";
      }
    }
  }
}

TEST(Attribution, ClosesUnderNoiseAndInterruptions) {
  SyntheticProgram program = model();
  program.noise = 0.2;
  program.burst_share = 0.002;
  const Attribution a = attributed(program, 200);
  EXPECT_TRUE(a.closure.closes) << a.closure.residual.value << " of " << a.closure.limit_ns;
  EXPECT_NEAR(a.closure.growth.value, kLayers * 40'000, 0.05 * kLayers * 40'000);
  EXPECT_NEAR(a.closure.sum.value, exact_sum(a), 1) << "rows add up exactly";
  EXPECT_EQ(a.ops.front().op, "attn");
  EXPECT_LE(a.closure.growth.interval.lo, kLayers * 40'000);
  // Of quiet steps a deeper, more variable one is a little more below its mean.
  EXPECT_GE(a.closure.growth.interval.hi, 0.98 * kLayers * 40'000);
  EXPECT_GT(a.closure.aa_floor_ns, 0);
}

TEST(Attribution, AnOpOfTheDeeperAnchorAloneIsAdded) {
  SyntheticProgram program = model();
  program.ops.push_back({"combine", 2, {0, 7'000}, 500});
  const Attribution a = attributed(program);
  EXPECT_TRUE(a.closure.closes);
  const auto found =
      std::find_if(a.launches.begin(), a.launches.end(),
                   [](const LaunchGrowth& launch) { return launch.key.op == "combine"; });
  ASSERT_NE(found, a.launches.end());
  EXPECT_EQ(found->match, Match::added);
  EXPECT_NEAR(found->growth.value, 7'000, 1);
  EXPECT_NEAR(a.closure.correction_ns, 40, 1) << "its watching is taken off the sum";
  EXPECT_NEAR(a.closure.sum.value - a.closure.growth.value, 40, 1);
  EXPECT_NEAR(a.closure.residual.value, 0, 1);
}

TEST(Attribution, AnOpOfTheShallowAnchorAloneIsRemoved) {
  SyntheticProgram program = model();
  program.ops.push_back({"small_cache", 1, {9'000, 0}, 0});
  const Attribution a = attributed(program);
  EXPECT_TRUE(a.closure.closes);
  EXPECT_EQ(a.launches.back().match, Match::removed);
  EXPECT_NEAR(a.launches.back().growth.value, -9'000, 1);
}

TEST(Attribution, ASleepOfTheHostIsIdleTimeAndNoOps) {
  SyntheticProgram program = model();
  for (test::SyntheticOp& op : program.ops) op.ns[1] = op.ns[0];
  program.sleep = [](size_t depth, bool) { return depth == 1 ? 80'000 : 0; };
  const Attribution a = attributed(program);
  EXPECT_TRUE(a.closure.closes);
  EXPECT_NEAR(a.gaps.value, 80'000, 1);
  EXPECT_NEAR(a.ops.front().growth.value, 0, 1);
  const std::optional<Diagnosis> diagnosis = diagnose_gaps(a);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(diagnosis->verdict, Bottleneck::launch);
}

TEST(Attribution, WhatHappensInUnwatchedStepsAloneDoesNotClose) {
  SyntheticProgram program = model();
  program.sleep = [](size_t depth, bool watched) { return depth == 1 && !watched ? 30'000 : 0; };
  const Attribution a = attributed(program);
  EXPECT_FALSE(a.closure.closes);
  EXPECT_NEAR(a.closure.residual.value, 30'000, 1);
  ASSERT_FALSE(a.closure.terms.empty());
  EXPECT_THAT(a.closure.terms.front().name, HasSubstr("watched steps take"));
  EXPECT_NEAR(a.closure.terms.front().ns, 30'000, 1);
}

TEST(Attribution, WatchingThatChangesThePathIsOverhead) {
  SyntheticProgram program = model();
  program.watching_ns = 9'000;
  const Attribution a = attributed(program);
  EXPECT_GT(a.overhead[0], kOverheadShare);
}

// Catalogue 7: idle time that only a watched step has is no launch problem; it does not close.
TEST(Attribution, GapsThatOnlyWatchingMakesAreNoFinding) {
  SyntheticProgram program = model();
  program.sleep = [](size_t depth, bool watched) { return depth == 1 && watched ? 30'000 : 0; };
  const Attribution a = attributed(program);
  EXPECT_NEAR(a.gaps.value, 30'000, 1) << "the records show it";
  EXPECT_FALSE(a.closure.closes) << "and no unwatched step has it";
  EXPECT_NEAR(a.closure.residual.value, -30'000, 1);
}

// Catalogue 8: however much watching costs, headline times are those of unwatched steps.
TEST(Attribution, TimesOfAStepAreThoseOfUnwatchedOnes) {
  SyntheticProgram program = model();
  const double exact = attributed(program).untraced_ns[1];
  program.watching_ns = 20'000;
  const Attribution watched = attributed(program);
  EXPECT_NEAR(watched.untraced_ns[1], exact, 1);
  EXPECT_NEAR(watched.closure.growth.value, kLayers * 40'000, 1);
  EXPECT_GT(watched.overhead[1], kOverheadShare);
}

TEST(Attribution, AThrottledClockShows) {
  SyntheticProgram program = model();
  EXPECT_LT(attributed(program).clock_drift, kClockDriftShare);
  int calls = 0;
  program.speed = [&calls](size_t) { return ++calls > 100 ? 800.0 : 1000.0; };
  const Observation throttled = observed(program);
  EXPECT_EQ(attribute(throttled, {65, 1642}).clock_drift, 0) << "it hits all arms alike";
  program.speed = [](size_t depth) { return depth == 1 ? 950.0 : 1000.0; };
  EXPECT_GT(attributed(program).clock_drift, kClockDriftShare);
  program.speed = [](size_t) { return 0.0; };
  EXPECT_LT(attributed(program).clock_drift, 0) << "not known";
}

TEST(Attribution, NothingGrowsBelowTheNoiseFloor) {
  SyntheticProgram program = model();
  for (test::SyntheticOp& op : program.ops) op.ns[1] = op.ns[0];
  program.noise = 0.3;
  const Attribution a = attributed(program, 40);
  EXPECT_GT(a.closure.aa_floor_ns, kFloorShare * std::abs(a.closure.growth.value));
  EXPECT_FALSE(diagnose_gaps(a).has_value());
}

TEST(Attribution, FitsALineThroughAllDepths) {
  SyntheticProgram program;
  program.ops.push_back({"attn", 0, {100'000, 150'000, 200'000, 400'000}, 0});
  const Observation o = observed(program, 10, 4);
  const Attribution a = attribute(o, {100, 200, 300, 700});
  EXPECT_NEAR(a.line.slope_ns, 500, 0.1);
  EXPECT_NEAR(a.line.intercept_ns, 50'000, 1);
  EXPECT_TRUE(o.depths[1].traced.empty()) << "only the anchors are watched";
  EXPECT_NEAR(a.closure.growth.value, 300'000, 1);
}

TEST(Attribution, TheNoisierDepthSetsTheFloor) {
  for (size_t depth : {0, 1}) {
    SyntheticProgram program = model();
    Observation o = observed(program);
    for (auto& pair : o.depths[depth].untraced) {
      for (int64_t& ns : pair[1].steps_ns) ns += 5'000;
    }
    const Attribution a = attribute(o, {65, 1642});
    EXPECT_NEAR(a.closure.aa_floor_ns, 5'000, 100) << depth;
    EXPECT_EQ(a.closure.limit_ns, a.closure.aa_floor_ns) << depth;
  }
}

// What a device gives: unwatched steps first, then watched ones, in which attn takes `more_ns`
// longer at depth, as a profiler is there.
Observation observed_apart(int64_t more_ns, double noise = 0) {
  SyntheticProgram quoted = model(), watching = model();
  quoted.noise = watching.noise = noise;
  for (test::SyntheticOp& op : watching.ops) {
    if (std::string_view(op.name) == "attn") op.ns[1] += more_ns;
  }
  Observation out = observed(quoted, noise > 0 ? 60 : 12);
  for (DepthSamples& depth : out.depths) depth.traced.clear();
  add_watched(out, observed(watching, noise > 0 ? 60 : 20));
  return out;
}

TEST(Attribution, StepsBeforeTheProfilerCameAreTheTruth) {
  const Attribution a = attribute(observed_apart(500), {65, 1642});  // 1.25 % of the growth
  EXPECT_NEAR(a.closure.growth.value, kLayers * 40'000, 1);
  EXPECT_NEAR(a.untraced_ns[1], a.closure.unwatched_ns[1], 1);
  EXPECT_NEAR(a.closure.sum.value, kLayers * 40'500, 1);
  EXPECT_NEAR(a.closure.residual.value, -kLayers * 500, 1)
      << "against the truth, not against itself";
  EXPECT_TRUE(a.closure.closes);
  EXPECT_NEAR(a.overhead[0], 13 * 40.0 / 682'000, 1e-4);
  EXPECT_NEAR(a.overhead[1], (13 * 40.0 + kLayers * 500) / 842'000, 1e-4);
}

TEST(Attribution, AProfilerThatSlowsDeepStepsDoesNotClose) {
  const Attribution a = attribute(observed_apart(1'000), {65, 1642});
  EXPECT_FALSE(a.closure.closes) << "2.5 % of the growth";
  EXPECT_THAT(a.closure.terms.front().name, HasSubstr("watched steps take +0.52 us at the first"));
  double sum = 0;
  for (const Term& term : a.closure.terms) sum += term.ns;
  EXPECT_NEAR(sum, a.closure.residual.value, 1e-6) << "the terms are all there is";
}

TEST(Attribution, TheResidualOfTwoWindowsHasTheErrorsOfBoth) {
  const Attribution a = attribute(observed_apart(0, 0.2), {65, 1642});
  const double growth = a.closure.growth.half_width(), sum = a.closure.sum.half_width();
  EXPECT_GT(a.closure.residual.half_width(), std::max(growth, sum));
  EXPECT_NEAR(a.closure.residual.half_width(), std::hypot(growth, sum), 0.2 * growth);
}

// Watched steps that vary far more than unwatched ones prove nothing, wherever their middle lies.
TEST(Attribution, ASumThatVariesMoreThanMayBeLeftIsNotPrecise) {
  SyntheticProgram quoted = model(), watching = model();
  watching.noise = 0.9;
  Observation o = observed(quoted, 12);
  for (DepthSamples& depth : o.depths) depth.traced.clear();
  add_watched(o, observed(watching, 6));
  const Attribution a = attribute(o, {65, 1642});
  EXPECT_GT(a.closure.residual.half_width(), a.closure.limit_ns);
  EXPECT_FALSE(a.closure.precise);
}

TEST(Observation, ABlockFarFromItsArmIsFlaggedAndKept) {
  SyntheticProgram program = model();
  program.noise = 0.02;
  Observation o = observed(program, 12);
  for (int64_t& ns : o.depths.front().untraced[3][1].steps_ns) ns *= 2;
  size_t n_flagged = 0;
  for (const Json& sample : observation_samples(o, {64, 1641})) {
    if (sample["flags"].empty()) continue;
    ++n_flagged;
    EXPECT_EQ(sample["flags"], Json({"outlier"}));
    EXPECT_EQ(sample["arm"], "untraced");
    EXPECT_EQ(sample["round"], 3);
    EXPECT_EQ(sample["half"], 1);
  }
  EXPECT_EQ(n_flagged, 1u);
}

TEST(Observation, OfTwoWindowsGoesThroughJsonUnchanged) {
  const Observation o = observed_apart(1'000);
  const Json samples = observation_samples(o, {64, 1641});
  const Observation back = observation_from_json(observation_header(o, {64, 1641}), samples);
  require_attributable(back);
  EXPECT_EQ(back.order_watched, o.order_watched);
  EXPECT_TRUE(back.is_apart());
  EXPECT_EQ(attribute(back, {1, 2}).closure.residual.value,
            attribute(o, {1, 2}).closure.residual.value);
  Observation broken = back;
  broken.depths.back().traced.pop_back();
  EXPECT_THROW(require_attributable(broken), Error);
}

TEST(Observation, EveryRoundIsMirroredAndEveryArmRunsTwice) {
  SyntheticProgram program = model();
  const Observation o = observed(program, 12, 2);
  ASSERT_EQ(o.order.size(), 12u);
  bool differs = false;
  for (const std::vector<int>& order : o.order) {
    ASSERT_EQ(order.size(), 8u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(order[i], order[7 - i]);
    differs = differs || order != o.order.front();
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(o.stopped, "rounds");
}

TEST(Observation, StopsWhenPreciseAndSaysSo) {
  SyntheticProgram program = model();
  OpTrace trace(20'000, program.clock());
  ObserveOptions options;
  options.source = &trace;
  options.block_ns = 3e6;
  options.clock = program.clock();
  options.precise_enough = residual_is_precise;
  const Observation o = observe(program, options);
  EXPECT_EQ(o.stopped, "precision");
  EXPECT_EQ(o.n_rounds(), 10u);
}

// Catalogue 6: what only the first runs pay (modules that load, pages that are touched) is in no
// sample.
TEST(Observation, TheFirstStepsAreInNoSample) {
  SyntheticProgram program = model();
  int n_steps[2] = {0, 0};
  program.sleep = [&](size_t depth, bool) { return n_steps[depth]++ == 0 ? 50'000'000 : 0; };
  const Observation o = observed(program, 10);
  for (const DepthSamples& depth : o.depths) {
    for (const BlockPair<UntracedBlock>& pair : depth.untraced) {
      for (const UntracedBlock& block : pair) {
        EXPECT_LT(*std::ranges::max_element(block.steps_ns), 2'000'000);
      }
    }
  }
}

TEST(Observation, ALostRecordEndsIt) {
  SyntheticProgram program = model();
  OpTrace trace(20, program.clock());  // too small for a window
  ObserveOptions options;
  options.source = &trace;
  options.block_ns = 3e6;
  options.clock = program.clock();
  EXPECT_THAT(observe(program, options).problem, HasSubstr("records were lost"));
}

// The third window of every five is broken.
class FlakySource : public TraceSource {
 public:
  explicit FlakySource(TraceSource& of) : of_(of) {}
  OpScopeSink& scopes() override { return of_.scopes(); }
  void start() override { of_.start(); }
  TraceWindow stop(int n_steps) override {
    TraceWindow window = of_.stop(n_steps);
    if (++n_windows_ % 5 == 3) window.problem = "1 records have impossible times";
    return window;
  }

 private:
  TraceSource& of_;
  int n_windows_ = 0;
};

TEST(Observation, ABrokenWindowIsMeasuredAgainAndCounted) {
  SyntheticProgram program = model();
  OpTrace trace(20'000, program.clock());
  FlakySource source(trace);
  ObserveOptions options;
  options.source = &source;
  options.block_ns = 3e6;
  options.clock = program.clock();
  options.min_rounds = options.max_rounds = 3;  // 12 windows and 3 broken ones
  const Observation o = observe(program, options);
  EXPECT_EQ(o.problem, "");
  EXPECT_EQ(o.refused_windows, 3);
  EXPECT_EQ(observation_header(o, {64, 1641})["refused_windows"], 3);
  EXPECT_NEAR(attribute(o, {65, 1642}).closure.residual.value, 0, 1) << "nothing of them is left";
  options.min_rounds = options.max_rounds = 6;
  EXPECT_THAT(observe(program, options).problem, HasSubstr("records have impossible times"))
      << "more than that is no accident";
}

TEST(Observation, GoesThroughJsonUnchanged) {
  SyntheticProgram program = model();
  program.noise = 0.1;
  const Observation o = observed(program, 12);
  const Observation back =
      observation_from_json(parse_json(dump_json(observation_header(o, {64, 1641})), "header"),
                            parse_json(dump_json(observation_samples(o, {64, 1641})), "samples"));
  EXPECT_EQ(back.lo().plan, o.lo().plan);
  EXPECT_EQ(back.order, o.order);
  const Attribution a = attribute(o, {1, 2}), b = attribute(back, {1, 2});
  EXPECT_EQ(a.closure.residual.value, b.closure.residual.value);
  EXPECT_EQ(a.ops.front().growth.interval.lo, b.ops.front().growth.interval.lo);
  EXPECT_THROW(observation_from_json(Json::object(), Json::array()), Error);
  const TraceStep step = trace_step_from_json(trace_step_json(o.hi().shown));
  EXPECT_EQ(step.records.size(), o.hi().shown.records.size());
  EXPECT_EQ(step.records.back().end_ns, o.hi().shown.records.back().end_ns);
}

// The same with time that really passes.
TEST(Observation, MeasuresBusyLoopsOfKnownLength) {
  class Busy : public StepProgram {
   public:
    void step(size_t depth) override {
      for (int layer = 0; layer < 2; ++layer) {
        spin("qkv", layer, 40'000);
        spin("attn", layer, depth == 0 ? 30'000 : 130'000);
      }
    }
    void watch(OpScopeSink* scopes) override { sink_ = scopes; }

   private:
    void spin(const char* op, int layer, int64_t ns) {
      if (sink_) sink_->begin({op, layer}, Cost{});
      const int64_t until = now_ns() + ns;
      while (now_ns() < until) {
      }
      if (sink_) sink_->end();
    }
    OpScopeSink* sink_ = nullptr;
  } program;
  OpTrace trace(20'000);
  ObserveOptions options;
  options.source = &trace;
  options.block_ns = 1.5e6;
  options.min_rounds = options.max_rounds = 40;
  const Attribution a = attribute(observe(program, options), {1, 2});
  EXPECT_EQ(a.ops.front().op, "attn");
  EXPECT_NEAR(a.ops.front().growth.value, 200'000, 20'000);
  EXPECT_NEAR(a.closure.growth.value, 200'000, 20'000);
}

}  // namespace
}  // namespace fathom::measure

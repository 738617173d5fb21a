// SPDX-License-Identifier: Apache-2.0
// Windows as a device would record them: overlap, idle time, and each kind of damage.
#include "measure/census.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cost.hpp"
#include "measure/op_trace.hpp"

namespace fathom::measure {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TraceRecord record(const char* op, int layer, int64_t start_ns, int64_t end_ns) {
  TraceRecord out;
  out.op = op;
  out.layer = layer;
  out.kernel = std::string(op) + "_kernel";
  out.start_ns = start_ns;
  out.end_ns = end_ns;
  out.grid = {8, 1, 1};
  out.block = {128, 1, 1};
  return out;
}

// Two steps; in each the second kernel starts while the first still runs (programmatic dependent
// launch), and the third stands 30 ns behind both.
TraceWindow overlapping() {
  TraceWindow window;
  for (const int64_t at : {1000, 2000}) {
    window.steps.push_back({{record("qkv", 0, at, at + 100), record("attn", 0, at + 60, at + 250),
                             record("down", 0, at + 280, at + 400)}});
  }
  return window;
}

TEST(Census, OverlapIsCountedOnce) {
  const Census census = take_census(overlapping());
  ASSERT_EQ(census.problem, "");
  EXPECT_EQ(census.n_steps, 1);
  EXPECT_THAT(census.exclusive_ns, ElementsAre(100, 150, 120));
  EXPECT_THAT(census.gap_ns, ElementsAre(600, 0, 30)) << "the first gap is the one between steps";
  EXPECT_EQ(census.span_ns, 1000);
  EXPECT_EQ(census.busy_ns, 100 + 190 + 120) << "40 ns ran side by side";
}

TEST(Census, AKernelInsideAnotherAddsNothing) {
  TraceWindow window = overlapping();
  for (TraceStep& step : window.steps) {
    step.records[1].start_ns = step.records[0].start_ns + 10;
    step.records[1].end_ns = step.records[0].start_ns + 50;
  }
  const Census census = take_census(window);
  EXPECT_THAT(census.exclusive_ns, ElementsAre(100, 0, 120));
  EXPECT_EQ(census.span_ns, 1000);
}

TEST(Census, OverlapAcrossStepsIsCountedOnce) {
  TraceWindow window = overlapping();
  for (TraceRecord& r : window.steps[1].records) {
    r.start_ns -= 620;
    r.end_ns -= 620;
  }
  const Census census = take_census(window);
  EXPECT_THAT(census.exclusive_ns, ElementsAre(80, 150, 120));
  EXPECT_THAT(census.gap_ns, ElementsAre(0, 0, 30));
  EXPECT_EQ(census.span_ns, 380);
}

TEST(Census, RecordsOfConcurrentKernelsMaySwapTheirOrder) {
  TraceWindow window = overlapping();
  window.steps.push_back(window.steps[1]);
  for (TraceRecord& r : window.steps[2].records) {
    r.start_ns += 1000;
    r.end_ns += 1000;
  }
  std::swap(window.steps[2].records[0].start_ns, window.steps[2].records[1].start_ns);
  const Census census = take_census(window);
  ASSERT_EQ(census.problem, "");
  EXPECT_EQ(census.n_steps, 1);
  EXPECT_EQ(census.span_ns, 1000);
}

TEST(Census, AnInterruptedStepIsNotSummed) {
  TraceWindow window;
  int64_t at = 1000;
  for (const int64_t length : {100, 100, 100, 900, 100}) {
    window.steps.push_back({{record("attn", 0, at, at + length)}});
    at += length + 10;
  }
  const Census census = take_census(window);
  EXPECT_EQ(census.n_steps, 1) << "of the four after the first, the second quickest";
  EXPECT_THAT(census.exclusive_ns, ElementsAre(100));
  EXPECT_THAT(census.gap_ns, ElementsAre(10));
  EXPECT_EQ(census.span_ns, 110);
}

TEST(Census, RefusesDamagedWindows) {
  TraceWindow lost = overlapping();
  lost.n_lost = 3;
  EXPECT_THAT(take_census(lost).problem, HasSubstr("3 records were lost"));

  TraceWindow no_times = overlapping();
  no_times.steps[1].records[1].start_ns = no_times.steps[1].records[1].end_ns = 0;
  EXPECT_THAT(take_census(no_times).problem, HasSubstr("1 records are invalid"));

  TraceWindow backwards = overlapping();
  backwards.steps[0].records[2].end_ns = backwards.steps[0].records[2].start_ns - 1;
  EXPECT_THAT(take_census(backwards).problem, HasSubstr("invalid"));

  TraceWindow counted = overlapping();
  counted.n_invalid = 1;
  EXPECT_THAT(take_census(counted).problem, HasSubstr("invalid"));

  TraceWindow short_step = overlapping();
  short_step.steps[1].records.pop_back();
  EXPECT_THAT(take_census(short_step).problem, HasSubstr("step 0 has 3 launches, the first one 2"));

  TraceWindow other_kernel = overlapping();
  other_kernel.steps[0].records[1].kernel = "attn_other_kernel";
  EXPECT_THAT(take_census(other_kernel).problem, HasSubstr("another kernel"));

  TraceWindow other_grid = overlapping();
  other_grid.steps[0].records[1].grid = {16, 1, 1};
  EXPECT_THAT(take_census(other_grid).problem, HasSubstr("another kernel or grid"));

  TraceWindow twice = overlapping();
  for (TraceStep& step : twice.steps) step.records[2] = step.records[1];
  EXPECT_THAT(take_census(twice).problem, HasSubstr("two records are both attn[0] of layer 0"));

  TraceWindow one;
  one.steps.push_back(overlapping().steps[0]);
  EXPECT_THAT(take_census(one).problem, HasSubstr("two steps"));

  TraceWindow refused;
  refused.problem = "another tool holds the profiler";
  EXPECT_EQ(take_census(refused).problem, "another tool holds the profiler");
}

int64_t tick = 0;

TEST(OpTrace, MakesARecordOfEachScopeAndCountsOrdinals) {
  OpTrace trace(16, [] { return tick += 10; });
  trace.start();
  OpScopeSink& sink = trace.scopes();
  for (int step = 0; step < 2; ++step) {
    for (const OpTag& tag : {OpTag{"embed", -1}, OpTag{"attn", 0}, OpTag{"attn", 0}}) {
      sink.begin(tag, Cost{});
      sink.end();
    }
  }
  const TraceWindow window = trace.stop(2);
  ASSERT_EQ(window.problem, "");
  ASSERT_EQ(window.steps.size(), 2u);
  ASSERT_EQ(window.steps[1].records.size(), 3u);
  EXPECT_EQ(window.steps[1].records[2].op, "attn");
  EXPECT_EQ(window.steps[1].records[2].ordinal, 1);
  EXPECT_EQ(window.steps[1].records[2].layer, 0);
  const Census census = take_census(window);
  EXPECT_THAT(census.exclusive_ns, ElementsAre(10, 10, 10));
  EXPECT_THAT(census.gap_ns, ElementsAre(10, 10, 10));
}

TEST(OpTrace, CountsWhatItHasNoRoomFor) {
  OpTrace trace(3, [] { return tick += 10; });
  trace.start();
  for (int i = 0; i < 4; ++i) {
    trace.scopes().begin({"embed", -1}, Cost{});
    trace.scopes().end();
  }
  EXPECT_EQ(trace.stop(1).n_lost, 1);
  trace.start();
  EXPECT_THAT(trace.stop(1).problem, HasSubstr("no whole number"));
}

}  // namespace
}  // namespace fathom::measure

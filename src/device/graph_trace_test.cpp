// SPDX-License-Identifier: Apache-2.0
// Streams of records made by hand: named right, or refused for what was done to them.
#include "device/graph_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "tests/support/raw_trace.hpp"

namespace fathom {
namespace {

using testing::HasSubstr;

constexpr uint32_t kGraph = 5, kExecutable = 9;

NodeNames three_nodes() {
  NodeNames names;
  names.created(uint64_t{kGraph} << 32);  // before any op: nobody's
  names.begin({"attn", 0}, {});
  names.created(uint64_t{kGraph} << 32 | 1);
  names.created(uint64_t{kGraph} << 32 | 2);
  names.end();
  names.begin({"norm_head", -1}, {});
  names.created(uint64_t{kGraph} << 32 | 3);
  names.end();
  names.instantiated(kGraph, kExecutable);
  return names;
}

KernelRecord record(uint64_t launch, uint32_t node, int64_t start_ns, int64_t end_ns) {
  KernelRecord out;
  out.launch = launch;
  out.node = uint64_t{kExecutable} << 32 | node;
  out.executable = kExecutable;
  out.start_ns = start_ns;
  out.end_ns = end_ns;
  out.kernel = "k" + std::to_string(node);
  return out;
}

// Two replays; the second launch has the lower id and its records come first, out of order.
RawTrace two_steps() {
  RawTrace raw;
  raw.executables = three_nodes().executables();
  raw.records = {record(7, 3, 1200, 1300), record(7, 1, 1000, 1150), record(7, 2, 1100, 1180),
                 record(8, 1, 100, 200),   record(8, 2, 150, 250),   record(8, 3, 300, 400)};
  raw.n_steps = 2;
  raw.begin_ns = 50;
  raw.end_ns = 2000;
  return raw;
}

TEST(GraphTrace, NamesNodesByTheScopesOfTheCapture) {
  const NodeNames names = three_nodes();
  EXPECT_EQ(names.size(kExecutable), 3);
  EXPECT_EQ(names.size(kGraph), 0);
  const NodeName* second = names.find(kExecutable, uint64_t{kExecutable} << 32 | 2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->op, "attn");
  EXPECT_EQ(second->layer, 0);
  EXPECT_EQ(second->ordinal, 1);
  EXPECT_EQ(names.find(kExecutable, 4), nullptr);
  EXPECT_EQ(names.find(kGraph, 1), nullptr);
}

TEST(GraphTrace, AScopeInsideAScopeIsAMistakeOfOurs) {
  NodeNames names;
  names.begin({"attn", 0}, {});
  EXPECT_THROW(names.begin({"attn", 1}, {}), Error);
}

TEST(GraphTrace, SplitsTheStreamIntoStepsInOrderOfTime) {
  const TraceWindow window = judge(two_steps());
  EXPECT_EQ(window.problem, "");
  EXPECT_EQ(window.n_lost, 0);
  EXPECT_EQ(window.n_invalid, 0);
  ASSERT_EQ(window.steps.size(), 2u);
  EXPECT_EQ(window.steps[0].records.front().start_ns, 100);
  const std::vector<TraceRecord>& records = window.steps[1].records;
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kernel, "k1");
  EXPECT_EQ(records[1].op, "attn");
  EXPECT_EQ(records[1].ordinal, 1);
  EXPECT_EQ(records[2].op, "norm_head");
  EXPECT_EQ(records[2].layer, -1);
}

struct Damage {
  const char* name;
  void (*apply)(RawTrace& raw);
  int64_t n_lost, n_invalid;
  const char* message;
};

class DamagedTrace : public testing::TestWithParam<Damage> {};

TEST_P(DamagedTrace, IsRefused) {
  RawTrace raw = two_steps();
  GetParam().apply(raw);
  const TraceWindow window = judge(raw);
  EXPECT_EQ(window.n_lost, GetParam().n_lost);
  EXPECT_EQ(window.n_invalid, GetParam().n_invalid);
  EXPECT_THAT(window.problem, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    GraphTrace, DamagedTrace,
    testing::Values(
        Damage{"lost", [](RawTrace& raw) { raw.records.pop_back(); }, 1, 0,
               "1 kernels of the graphs have no record"},
        Damage{"dropped", [](RawTrace& raw) { raw.n_dropped = 4; }, 4, 0,
               "4 records were dropped by the device"},
        Damage{"no_start", [](RawTrace& raw) { raw.records[1].start_ns = 0; }, 0, 1,
               "1 records have impossible times: attn of layer 0 has no times"},
        Damage{"no_length", [](RawTrace& raw) { raw.records[1].end_ns = raw.records[1].start_ns; },
               0, 1, "takes no time"},
        Damage{"backwards", [](RawTrace& raw) { raw.records[1].end_ns = 900; }, 0, 1,
               "ends 0.1 µs before it starts"},
        Damage{"too_early",
               [](RawTrace& raw) {
                 raw.begin_ns = 2'100;
                 raw.end_ns = 9'000;
               },
               0, 6, "starts 0.9 µs before the window"},
        Damage{"too_late", [](RawTrace& raw) { raw.end_ns = 1'200; }, 0, 1,
               "norm_head ends 0.1 µs after the window"},
        Damage{"twice", [](RawTrace& raw) { raw.records[0] = record(7, 1, 1200, 1300); }, 2, 0,
               "1 records name a node that its replay has had already"},
        Damage{"unknown_node", [](RawTrace& raw) { raw.records[0] = record(7, 4, 1200, 1300); }, 2,
               0, "1 records name a node that no op captured"},
        Damage{"unknown_graph", [](RawTrace& raw) { raw.executables.clear(); }, 6, 0,
               "0 steps were seen where 2 ran"},
        Damage{"no_graph", [](RawTrace& raw) { raw.records[0].node = 0; }, 2, 0,
               "1 kernels ran outside the graphs"},
        Damage{"lost_step", [](RawTrace& raw) { raw.n_steps = 3; }, 0, 0,
               "2 steps were seen where 3 ran"},
        Damage{"said_so", [](RawTrace& raw) { raw.problem = "no memory"; }, 0, 0, "no memory"}),
    [](const auto& test) { return test.param.name; });

// Five steps of two layers of Qwen2.5-0.5B's shape on an H200, whose kernels overlap: each starts
// while the one before runs, and waits.
TEST(GraphTrace, ARecordedStreamIsWholeAndNamed) {
  const RawTrace raw = test::read_raw_trace("h200_two_layers.json");
  const TraceWindow window = judge(raw);
  EXPECT_EQ(window.problem, "");
  ASSERT_EQ(window.steps.size(), 5u);
  for (const TraceStep& step : window.steps) {
    ASSERT_EQ(step.records.size(), 13u);
    EXPECT_EQ(step.records.front().op, "begin_step");
    EXPECT_EQ(step.records.back().op, "norm_head");
    int64_t sum = 0, reached = step.records.front().start_ns, busy = 0;
    for (const TraceRecord& record : step.records) {
      sum += record.end_ns - record.start_ns;
      busy += std::max<int64_t>(0, record.end_ns - std::max(record.start_ns, reached));
      reached = std::max(reached, record.end_ns);
      EXPECT_EQ(record.kernel.find("attn_kernel") != std::string::npos, record.op == "attn");
    }
    EXPECT_GT(sum, 3 * busy / 2) << "durations add up to far more than the time that passed";
  }
}

TEST(GraphTrace, ALostRecordOfARecordedStreamIsSeen) {
  const RawTrace whole = test::read_raw_trace("h200_two_layers.json");
  for (size_t i = 0; i < whole.records.size(); i += 7) {
    RawTrace raw = whole;
    raw.records.erase(raw.records.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(judge(raw).n_lost, 1);
    EXPECT_THAT(judge(raw).problem, HasSubstr("have no record"));
  }
}

TEST(GraphTrace, NothingIsNoStep) {
  RawTrace raw;
  EXPECT_EQ(judge(raw).problem, "");
  raw.n_steps = 1;
  EXPECT_THAT(judge(raw).problem, HasSubstr("0 steps were seen where 1 ran"));
}

}  // namespace
}  // namespace fathom

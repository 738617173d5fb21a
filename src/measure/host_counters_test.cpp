// SPDX-License-Identifier: Apache-2.0
// What threads count lands on the op that ran, scaled where the PMU was shared; what is missing or
// refused has its reason; and what follows for an op.
#include "measure/host_counters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <tuple>

#include "measure/evidence.hpp"
#include "measure/machine.hpp"

namespace fathom::measure {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr uint64_t kMisses = PERF_COUNT_HW_CACHE_MISSES;
constexpr uint64_t kStalled = PERF_COUNT_HW_STALLED_CYCLES_BACKEND;

// Two threads whose counters stand where a test puts them.
class FakeCalls : public PerfCalls {
 public:
  std::vector<int> threads() override { return {10, 11}; }
  int open(const PerfEvent& event, int thread, int group) override {
    const auto refusal = refused.find({thread, event.type, event.config});
    if (refusal != refused.end()) return -refusal->second;
    const int fd = next_++;
    if (group < 0) group_of_[fd] = thread;
    opened.insert(fd);
    ++n_counters_[thread];
    return fd;
  }
  bool read(int group, std::span<uint64_t> into) override {
    const int thread = group_of_.at(group);
    EXPECT_EQ(into.size(), 3 + n_counters_[thread]);
    const auto& now = state[thread];
    into[0] = n_counters_[thread];
    for (size_t i = 1; i < into.size(); ++i) into[i] = now[i - 1];
    return !broken;
  }
  void close(int descriptor) override { opened.erase(descriptor); }
  // Adds ns enabled and running, cycles, instructions, misses and stalled cycles.
  void work(int thread, const std::array<uint64_t, 6>& counts) {
    for (size_t i = 0; i < counts.size(); ++i) state[thread][i] += counts[i];
  }
  // Of both threads.
  void refuse(uint32_t type, uint64_t config, int error) {
    for (const int thread : {10, 11}) refused[{thread, type, config}] = error;
  }

  std::map<std::tuple<int, uint32_t, uint64_t>, int> refused;
  std::set<int> opened;
  std::map<int, std::array<uint64_t, 6>> state;
  bool broken = false;

 private:
  int next_ = 3;
  std::map<int, int> group_of_;
  std::map<int, size_t> n_counters_;
};

struct Fixture {
  FakeCalls calls;
  void op(HostCounters& counters, const char* name, int layer, const std::array<uint64_t, 6>& first,
          const std::array<uint64_t, 6>& second) {
    const OpScope scope(&counters, {name, layer}, {});
    calls.work(10, first);
    calls.work(11, second);
  }
};

TEST(HostCounters, SumsTheThreadsAndCallsOfEachOp) {
  Fixture f;
  HostCounters counters(f.calls);
  ASSERT_TRUE(counters.usable()) << counters.why();
  EXPECT_EQ(f.calls.opened.size(), 8u);
  for (int step = 0; step < 2; ++step) {
    f.op(counters, "attn", 0, {10, 10, 100, 200, 3, 50}, {10, 10, 10, 20, 1, 5});
    f.calls.work(11, {9, 9, 900, 900, 900, 900});  // outside every op
    f.op(counters, "ffn", 0, {7, 7, 70, 70, 7, 7}, {0, 0, 0, 0, 0, 0});
    f.op(counters, "attn", 1, {10, 10, 100, 200, 3, 50}, {10, 10, 10, 20, 1, 5});
  }
  const CounterRun run = counters.take(2);
  EXPECT_EQ(run.problem, "");
  ASSERT_EQ(run.ops.size(), 2u);
  EXPECT_EQ(run.ops[0].op, "attn");
  EXPECT_THAT(run.ops[0].values, testing::ElementsAre(220, 440, 8 * 64, 110));
  EXPECT_THAT(run.ops[1].values, testing::ElementsAre(70, 70, 7 * 64, 7)) << "one thread slept";
  EXPECT_EQ(run.counters[2].metric, "LLC-load-misses");
  EXPECT_TRUE(counters.take(1).ops.empty()) << "taken";
}

TEST(HostCounters, ScalesWhatWasMultiplexed) {
  Fixture f;
  HostCounters counters(f.calls);
  f.op(counters, "attn", 0, {100, 25, 10, 20, 5, 1}, {10, 10, 10, 10, 10, 10});
  f.op(counters, "ffn", 0, {10, 0, 0, 0, 0, 0}, {10, 10, 10, 10, 10, 10});
  const CounterRun run = counters.take(1);
  EXPECT_THAT(run.ops[0].values, testing::ElementsAre(50, 90, 30 * 64, 14));
  EXPECT_THAT(run.ops[1].values, testing::Each(testing::Eq(std::nullopt)))
      << "a thread worked and was never counted";
  Counted counted{{run, run}, {}, ""};
  EXPECT_EQ(evidence_of("attn", counted, {}, 0).why_no_counters, "");
  EXPECT_THAT(evidence_of("ffn", counted, {}, 0).why_no_counters, HasSubstr("no room"));
}

TEST(HostCounters, WhatTheCpuLacksIsNullWithAReason) {
  Fixture f;
  for (const int type : {PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE}) {
    for (const uint64_t config : {kMisses, kStalled, uint64_t{0x10002}}) {
      f.calls.refuse(static_cast<uint32_t>(type), config, ENOENT);
    }
  }
  HostCounters counters(f.calls);
  ASSERT_TRUE(counters.usable());
  f.op(counters, "attn", 0, {10, 10, 100, 200, 0, 0}, {0, 0, 0, 0, 0, 0});
  const CounterRun run = counters.take(1);
  EXPECT_THAT(run.ops[0].values,
              testing::ElementsAre(100, 200, testing::Eq(std::nullopt), testing::Eq(std::nullopt)));
  const Evidence e = evidence_of("attn", {{run, run}, {}, ""}, {}, 0);
  EXPECT_FALSE(e.read_bytes || e.memory_bytes || e.backend_stalled);
  EXPECT_EQ(e.instructions_per_cycle, 2);
  EXPECT_THAT(e.why_no_counters, HasSubstr("llc_read_miss_bytes: this CPU does not offer it"));
}

TEST(HostCounters, AllMissesStandInForThoseOfLoads) {
  Fixture f;
  f.calls.refuse(PERF_TYPE_HW_CACHE, 0x10002, EINVAL);
  HostCounters counters(f.calls);
  f.op(counters, "attn", 0, {10, 10, 100, 200, 3, 50}, {0, 0, 0, 0, 0, 0});
  const CounterRun run = counters.take(1);
  EXPECT_EQ(run.counters[2].metric, "cache-misses");
  EXPECT_EQ(run.ops[0].values[2], 3 * 64);
}

TEST(HostCounters, ARefusalIsTheReasonThatTheMachineGives) {
  for (const int error : {ENOENT, EACCES}) {
    FakeCalls calls;
    calls.refuse(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, error);
    const HostCounters counters(calls);
    EXPECT_FALSE(counters.usable());
    EXPECT_EQ(counters.why(), counters_problem(error));
    EXPECT_TRUE(calls.opened.empty());
  }
  EXPECT_THAT(counters_problem(EACCES), HasSubstr("perf_event_paranoid"));
}

TEST(HostCounters, AThreadThatCannotBeCountedSpoilsTheSumAndOneThatEndedDoesNot) {
  FakeCalls calls;
  calls.refused[{11, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}] = EMFILE;
  const HostCounters spoilt(calls);
  EXPECT_THAT(spoilt.why(), HasSubstr("Too many open files"));
  EXPECT_TRUE(calls.opened.empty());
  calls.refused = {{{11, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}, ESRCH}};
  {
    const HostCounters counters(calls);
    EXPECT_TRUE(counters.usable());
    EXPECT_EQ(calls.opened.size(), 4u);
  }
  EXPECT_TRUE(calls.opened.empty());
}

TEST(HostCounters, AReadingThatFailsIsAProblemOfTheRun) {
  Fixture f;
  HostCounters counters(f.calls);
  f.calls.broken = true;
  f.op(counters, "attn", 0, {10, 10, 100, 200, 3, 50}, {0, 0, 0, 0, 0, 0});
  const CounterRun run = counters.take(1);
  EXPECT_THAT(run.problem, HasSubstr("could not be read"));
  EXPECT_TRUE(run.ops.empty());
}

TEST(HostCounters, OfThisMachineAreThereOrMissingForItsReason) {
  HostCounters counters(linux_perf_calls());
  EXPECT_EQ(counters.why(), inspect_machine().counters);
  if (!counters.usable()) return;
  { const OpScope scope(&counters, {"attn", 0}, {}); }
  EXPECT_EQ(counters.take(1).problem, "");
}

// An op that takes 1 ms longer for the deeper anchor's 85 MB, at 100 GB/s.
TEST(HostCounters, MissesCheckTheDeclaredBytesAndDecideNoVerdict) {
  const Peaks peaks{
      .memory_gbps = 100, .cache_gbps = 400, .gflops = 1000, .cache_bytes = 10'000'000};
  OpGrowth growth;
  growth.op = "attn";
  growth.lo_ns = 100'000;
  growth.hi_ns = 1'100'000;
  const auto diagnosed = [&](int64_t declared, double misses) {
    Fixture f;
    HostCounters counters(f.calls);
    Counted counted;
    for (const double share : {0.01, 1.}) {
      const auto lines = static_cast<uint64_t>(share * misses);
      f.op(counters, "attn", 0, {10, 10, 1000, 1500, lines, 400}, {0, 0, 0, 0, 0, 0});
      counted.runs[share == 1] = counters.take(1);
    }
    const Evidence e =
        evidence_of("attn", counted_from_json(counted_json(counted)), {{}, "not sampled"}, 0);
    EXPECT_FALSE(e.memory_bytes || e.units_active || e.compute_share);
    EXPECT_EQ(e.backend_stalled, 0.4);
    return diagnose(decompose(growth, {"attn", 850'000, 0}, {"attn", declared, 0}, std::nullopt,
                              100'000'000, peaks),
                    e, peaks);
  };
  const Diagnosis counted = diagnosed(86'000'000, 1'343'750);
  EXPECT_EQ(counted.verdict, Bottleneck::bandwidth) << "by its declared bytes";
  EXPECT_THAT(counted.known, Contains(HasSubstr("counters saw 1.00 times the declared bytes")));
  EXPECT_THAT(counted.known, Contains(HasSubstr("1.50 instructions in each cycle")));
  const Diagnosis prefetched = diagnosed(86'000'000, 300'000);
  EXPECT_EQ(prefetched.verdict, Bottleneck::bandwidth) << "prefetches are no cache";
  EXPECT_THAT(prefetched.known, Contains(HasSubstr("caches or prefetches that are not counted")));
  const Diagnosis misses_alone = diagnosed(20'000'000, 1'343'750);
  EXPECT_EQ(misses_alone.verdict, Bottleneck::undetermined);
  EXPECT_THAT(misses_alone.known, Contains(HasSubstr("re-reads")));
  EXPECT_THAT(misses_alone.missing, Contains(HasSubstr("only misses of reads are counted")));
}

}  // namespace
}  // namespace fathom::measure

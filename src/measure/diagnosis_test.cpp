// SPDX-License-Identifier: Apache-2.0
// Each verdict from the evidence that it needs, and no verdict without.
#include "measure/diagnosis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "measure/flop_peak.hpp"

namespace fathom::measure {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr Peaks kPeaks{
    .memory_gbps = 100, .cache_gbps = 400, .gflops = 1000, .cache_bytes = 10'000'000};
constexpr int64_t kStepBytes = 100'000'000;  // far beyond the cache

// An op that grows by 1 ms, and by so many bytes and operations.
Decomposition grown(int64_t bytes, int64_t flops, int64_t step_bytes = kStepBytes) {
  OpGrowth growth;
  growth.op = "attn";
  growth.lo_ns = 100'000;
  growth.hi_ns = 1'100'000;
  return decompose(growth, {"attn", 1'000'000, 1'000'000},
                   {"attn", 1'000'000 + bytes, 1'000'000 + flops}, Arithmetic::f32, step_bytes,
                   kPeaks);
}

TEST(Decomposition, SplitsTheGrowthIntoBytesArithmeticAndTheRest) {
  const Decomposition parts = grown(50'000'000, 200'000'000);
  EXPECT_EQ(parts.residence, Residence::memory);
  EXPECT_NEAR(parts.growth_ns(), 1e6, 1e-6);
  EXPECT_NEAR(parts.bytes_growth_ns(), 500'000, 1e-6);
  EXPECT_NEAR(parts.floor_growth_ns(), 500'000, 1e-6);
  EXPECT_NEAR(parts.exposed_growth_ns(), 500'000, 1e-6);
  EXPECT_NEAR(*parts.hi.compute_ns - *parts.lo.compute_ns, 200'000, 1e-6);
}

TEST(Decomposition, AStepThatFitsIntoTheCacheIsSetAgainstTheCache) {
  const Decomposition parts = grown(4'000'000, 0, 8'000'000);
  EXPECT_EQ(parts.residence, Residence::cached);
  EXPECT_NEAR(parts.bytes_growth_ns(), 10'000, 1e-6);
  EXPECT_EQ(residence_of(15'000'000, kPeaks), Residence::partly_cached);
}

TEST(Diagnosis, DeclaredBytesNearThePeakProveBandwidth) {
  EXPECT_EQ(diagnose(grown(85'000'000, 0), {}, kPeaks).verdict, Bottleneck::bandwidth);
  EXPECT_EQ(diagnose(grown(79'000'000, 0), {}, kPeaks).verdict, Bottleneck::undetermined);
  EXPECT_EQ(diagnose(grown(120'000'000, 0), {}, kPeaks).verdict, Bottleneck::undetermined)
      << "faster than the memory: they came from elsewhere";
  EXPECT_EQ(diagnose(grown(350'000'000, 0, 9'000'000), {}, kPeaks).verdict,
            Bottleneck::undetermined)
      << "the cache's bandwidth is not the memory's";
}

TEST(Diagnosis, ArithmeticNearThePeakProvesCompute) {
  EXPECT_EQ(diagnose(grown(1'000'000, 700'000'000), {}, kPeaks).verdict, Bottleneck::compute);
  EXPECT_EQ(diagnose(grown(1'000'000, 500'000'000), {}, kPeaks).verdict, Bottleneck::undetermined);
}

TEST(Diagnosis, WithoutCountersItSaysWhatIsMissingAndWhatRemainsTrue) {
  Evidence evidence;
  evidence.why_no_counters = "no PMU";
  const Diagnosis d = diagnose(grown(40'000'000, 100'000'000), evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::undetermined);
  EXPECT_THAT(d.known, Contains(HasSubstr("40 % of the memory's peak")));
  EXPECT_THAT(d.known, Contains(HasSubstr("600.0 us of the 1000.0 us are neither")));
  EXPECT_THAT(d.missing, Contains(HasSubstr("waited for (no PMU)")));
  EXPECT_THAT(d.missing, Contains(HasSubstr("crossed the memory bus (no PMU)")));
}

Evidence counters(double memory_share, double active, const char* stall) {
  Evidence evidence;
  evidence.memory_bytes = memory_share * 100 * 1'100'000;
  evidence.units_active = active;
  evidence.compute_share = 0.1;
  evidence.top_stall = stall;
  return evidence;
}

TEST(Diagnosis, CountersTellLatencyFromParallelismFromBandwidth) {
  const Decomposition parts = grown(40'000'000, 100'000'000);
  EXPECT_EQ(diagnose(parts, counters(0.4, 0.95, "long_scoreboard"), kPeaks).verdict,
            Bottleneck::memory_latency);
  EXPECT_EQ(diagnose(parts, counters(0.4, 0.5, "long_scoreboard"), kPeaks).verdict,
            Bottleneck::parallelism);
  EXPECT_EQ(diagnose(parts, counters(0.85, 0.95, "long_scoreboard"), kPeaks).verdict,
            Bottleneck::bandwidth);
  EXPECT_EQ(diagnose(parts, counters(0.4, 0.95, "barrier"), kPeaks).verdict,
            Bottleneck::undetermined);
  EXPECT_EQ(diagnose(parts, counters(0.7, 0.95, "long_scoreboard"), kPeaks).verdict,
            Bottleneck::undetermined)
      << "between the limits";
}

// Neither what it waits for nor how few units work differs between the depths.
TEST(Diagnosis, OfTheSameWorkNoLimitIsWhyItGrows) {
  for (double active : {0.97, 0.5}) {
    const Diagnosis d = diagnose(grown(0, 0), counters(0.05, active, "long_scoreboard"), kPeaks);
    EXPECT_EQ(d.verdict, Bottleneck::undetermined) << active;
    EXPECT_THAT(d.known, Contains(HasSubstr("declares the same work at both depths")));
    EXPECT_THAT(d.known, Contains(HasSubstr("that is not why it grows")));
    EXPECT_THAT(d.missing, testing::IsEmpty());
  }
  EXPECT_EQ(diagnose(grown(0, 0), counters(0.9, 0.97, "long_scoreboard"), kPeaks).verdict,
            Bottleneck::bandwidth)
      << "what a cache held before is read from memory now";
}

TEST(Diagnosis, DeclaredBytesAreCheckedAgainstCounters) {
  const Decomposition parts = grown(39'000'000, 0);  // 40 MB at the deeper anchor
  Evidence evidence = counters(0.4, 0.95, "long_scoreboard");
  const auto told = [&](double bytes) {
    evidence.memory_bytes = bytes;
    return diagnose(parts, evidence, kPeaks).known;
  };
  EXPECT_THAT(told(20e6), Contains(HasSubstr("0.50 times the declared bytes: a cache")));
  EXPECT_THAT(told(40e6), Contains(testing::EndsWith("1.00 times the declared bytes")));
  EXPECT_THAT(told(60e6), Contains(HasSubstr("1.50 times the declared bytes: some were read")));
}

// Bytes that an op moves at both depths alike do not speak for its growth, nor against it.
TEST(Diagnosis, WhatIsCountedAtBothAnchorsIsSetAgainstTheGrowth) {
  const Decomposition parts = grown(90'000'000, 0);
  Evidence evidence = counters(0, 0.95, "long_scoreboard");
  evidence.memory_bytes = 101e6;
  evidence.memory_bytes_lo = 11e6;
  const Diagnosis d = diagnose(parts, evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::bandwidth);
  EXPECT_THAT(d.known, Contains(HasSubstr("+90.00 MB a step, memory traffic at 90 %")));
  evidence.memory_bytes = 61e6;
  EXPECT_EQ(diagnose(parts, evidence, kPeaks).verdict, Bottleneck::memory_latency);
}

// Its time alone cannot hold these bytes: it runs under a neighbour's.
TEST(Diagnosis, BytesThatComeFasterThanTheMemoryProveNothing) {
  Evidence evidence = counters(1.5, 0.95, "long_scoreboard");
  const Diagnosis d = diagnose(grown(150'000'000, 0), evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::undetermined);
  EXPECT_THAT(d.known, Contains(HasSubstr("more than the memory gives")));
}

TEST(Diagnosis, ABusyPipeIsComputeUnlessWarpsWaitForLoads) {
  const Decomposition parts = grown(10'000'000, 0);
  Evidence evidence = counters(0.1, 0.95, "math_pipe_throttle");
  evidence.compute_share = 0.7;
  evidence.compute_pipe = "tensor pipe";
  const Diagnosis d = diagnose(parts, evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::compute);
  EXPECT_THAT(d.known, Contains(HasSubstr("the tensor pipe works 70 % of the time")));
  evidence.top_stall = "long_scoreboard";
  const Diagnosis both = diagnose(parts, evidence, kPeaks);
  EXPECT_EQ(both.verdict, Bottleneck::undetermined);
  EXPECT_THAT(both.known, Contains(HasSubstr("the tests contradict")));
}

TEST(Diagnosis, WaitingForBulkCopiesIsWaitingForLoads) {
  EXPECT_EQ(diagnose(grown(40'000'000, 100'000'000), counters(0.4, 0.95, "barrier of a bulk copy"),
                     kPeaks)
                .verdict,
            Bottleneck::memory_latency);
}

TEST(Diagnosis, ALowWaveCountDecidesNothing) {
  Evidence evidence = counters(0.4, 0.95, "long_scoreboard");
  evidence.blocks = 896;
  evidence.units = 132;
  evidence.waves = 0.21;
  const Diagnosis d = diagnose(grown(40'000'000, 100'000'000), evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::memory_latency) << "the units had work";
  EXPECT_THAT(d.known, Contains(HasSubstr("896 blocks for 132 units, 0.21 waves")));
}

TEST(Diagnosis, EachMissingPieceHasItsOwnReason) {
  Evidence evidence;
  evidence.why_no_counters = "no right (35)";
  evidence.why_no_stalls = "another profiler";
  const Diagnosis d = diagnose(grown(40'000'000, 100'000'000), evidence, kPeaks);
  EXPECT_THAT(d.missing, Contains(HasSubstr("units were (no right (35))")));
  EXPECT_THAT(d.missing, Contains(HasSubstr("waited for (another profiler)")));
}

// Three quarters of the growth are idle time; the graph saves time, or does not.
TEST(Diagnosis, LaunchNeedsThatLaunchingCostsSomething) {
  Attribution a;
  a.untraced_ns = {1'000'000, 1'400'000};
  a.closure.growth = {400'000, {399'000, 401'000}};
  a.gaps = {300'000, {299'000, 301'000}};
  EXPECT_EQ(diagnose_gaps(a)->verdict, Bottleneck::launch);
  const auto slower = diagnose_gaps(a, EagerSteps{{1'500'000, 1'950'000}});
  EXPECT_EQ(slower->verdict, Bottleneck::launch);
  EXPECT_THAT(slower->known, Contains(HasSubstr("+500.0 us and +550.0 us more")));
  const auto same = diagnose_gaps(a, EagerSteps{{1'000'000, 1'390'000}});
  EXPECT_EQ(same->verdict, Bottleneck::undetermined);
  a.gaps.value = 100'000;
  EXPECT_FALSE(diagnose_gaps(a, EagerSteps{{1'500'000, 1'950'000}}));
}

TEST(Diagnosis, BytesAreAsDeclaredReadAgainOrServedByTheCache) {
  EXPECT_EQ(check_bytes(95.0, 100), BytesCheck::as_declared);
  EXPECT_EQ(check_bytes(89.0, 100), BytesCheck::l2_served);
  EXPECT_EQ(check_bytes(121.0, 100), BytesCheck::re_reads);
  EXPECT_FALSE(check_bytes(std::nullopt, 100));
  EXPECT_FALSE(check_bytes(1.0, 0));
}

TEST(Decomposition, TheArithmeticOfADeviceIsSetAgainstItsTensorCores) {
  Peaks peaks = kPeaks;
  peaks.f16_tensor_gflops = 4000;
  OpGrowth growth;
  growth.op = "attn";
  growth.lo_ns = 100'000;
  growth.hi_ns = 1'100'000;
  const auto compute_ns = [&](std::optional<Arithmetic> arithmetic) {
    return decompose(growth, {"attn", 0, 0}, {"attn", 0, 400'000'000}, arithmetic, kStepBytes,
                     peaks)
        .hi.compute_ns;
  };
  EXPECT_EQ(compute_ns(Arithmetic::f32), 400'000);
  EXPECT_EQ(compute_ns(Arithmetic::f16_tensor), 100'000);
  EXPECT_FALSE(compute_ns(Arithmetic::int8_tensor)) << "not measured";
  EXPECT_FALSE(compute_ns(std::nullopt));
}

TEST(Diagnosis, FewBlocksAreEvidenceButDecideNothingAlone) {
  Evidence evidence;
  evidence.blocks = 20;
  evidence.units = 132;
  const Diagnosis d = diagnose(grown(40'000'000, 100'000'000), evidence, kPeaks);
  EXPECT_EQ(d.verdict, Bottleneck::undetermined);
  EXPECT_THAT(d.known, Contains(HasSubstr("20 blocks for 132 units")));
}

TEST(FlopPeak, IsARateThatAMachineCanHave) {
  FlopPeak peak(1);
  const double gflops = peak.sample_gflops(0.005);
  EXPECT_GT(gflops, 0.1);
  EXPECT_LT(gflops, 2000);
}

}  // namespace
}  // namespace fathom::measure

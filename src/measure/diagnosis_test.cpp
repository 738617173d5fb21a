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
                   {"attn", 1'000'000 + bytes, 1'000'000 + flops}, true, step_bytes, kPeaks);
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

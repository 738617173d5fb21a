// SPDX-License-Identifier: Apache-2.0
// What follows for an op from counters and stalls, and what is said where they are missing.
#include "measure/evidence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Of two layers, whose values are given each: reads, writes, mean and most cycles, warps, tensor,
// FMA and integer pipe.
CounterRun run_of(const std::vector<double>& values) {
  CounterRun run;
  for (const std::string& name : evidence_counters()) {
    run.counters.push_back(
        {.name = name, .unit = "", .metric = "m__" + name, .scale = 1, .note = ""});
  }
  for (const int layer : {0, 1}) {
    OpCounters op{.op = "attn", .layer = layer, .values = {}};
    for (const double value : values) op.values.push_back(value);
    run.ops.push_back(op);
    op.op = "other";
    for (auto& value : op.values) value = 1e9;
    run.ops.push_back(op);
  }
  run.n_passes = 1;
  return run;
}

Counted counted() {
  Counted out;
  out.runs[0] = run_of({1e6, 0, 1000, 2000, 10, 1, 2, 3});
  out.runs[1] = run_of({40e6, 1e6, 9500, 11000, 20, 5, 30, 10});
  const auto launch = [&](const char* op, std::array<int, 3> grid, double waves) {
    OpLaunch& to = out.launches.emplace_back();
    to.op = op;
    to.launch.grid = grid;
    to.launch.waves = waves;
  };
  launch("attn", {28, 1, 1}, 0.01);
  launch("attn", {32, 28, 1}, 0.21);
  launch("other", {900, 1, 1}, 1);
  return out;
}

StalledPlace place(int64_t offset, const char* instruction, std::vector<StallCount> reasons) {
  StalledPlace at;
  at.place = {.offset = offset, .instruction = instruction, .file = "attn.cuh", .line = 33};
  at.reasons = std::move(reasons);
  for (const StallCount& count : at.reasons) at.samples += count.samples;
  return at;
}

Sampled sampled() {
  StallProfile profile;
  KernelStalls kernel{.kernel = "_ZN6fathom4cuda11attn_kernelILi64EEEvNS0_10AttnParamsE",
                      .samples = 100,
                      .reasons = {{"long_scoreboard", 80}, {"wait", 20}},
                      .places = {place(0x1a0, "FFMA", {{"long_scoreboard", 60}, {"wait", 5}}),
                                 place(0x2b0, "FMUL", {{"long_scoreboard", 20}, {"wait", 15}})}};
  kernel.places[0].producers = {{.offset = 0x40, .instruction = "LDG", .file = "", .line = 0},
                                {.offset = 0x50, .instruction = "LDG", .file = "", .line = 0}};
  profile.kernels = {kernel};
  profile.n_samples = 120;
  Sampled out;
  out.ops["attn"] = profile;
  return out;
}

TEST(Evidence, SumsTheLaunchesOfAnOpAndSetsCyclesAgainstTheBusiestUnit) {
  const Evidence e = evidence_of("attn", counted(), sampled(), 132);
  EXPECT_EQ(e.read_bytes_lo, 2e6);
  EXPECT_EQ(e.read_bytes, 80e6);
  EXPECT_EQ(e.memory_bytes, 82e6);
  EXPECT_NEAR(*e.units_active, (19000. - 2000) / (22000. - 4000), 1e-9) << "of the growth";
  EXPECT_EQ(e.compute_pipe, "FMA pipe");
  EXPECT_NEAR(*e.compute_share, 0.30 * 19000 / 22000, 1e-9);
  EXPECT_NEAR(*e.occupancy, 0.20, 1e-9);
  EXPECT_EQ(e.blocks, 896);
  EXPECT_EQ(e.waves, 0.21);
  EXPECT_EQ(e.why_no_counters, "");
}

// More blocks at once in more units: 64 of 132, whose work grows by less than the launch takes.
TEST(Evidence, ALaunchThatHardlyTakesLongerIsJudgedAsAWhole) {
  Counted few = counted();
  few.runs[0] = run_of({0, 0, 3088, 14476, 6, 0, 3, 9});
  few.runs[1] = run_of({3e6, 0, 7889, 16624, 6, 2, 6, 12});
  EXPECT_NEAR(*evidence_of("attn", few, sampled(), 132).units_active, 0.475, 0.001);
}

TEST(Evidence, NamesTheStallItsPlaceAndTheLoads) {
  const Evidence e = evidence_of("attn", counted(), sampled(), 132);
  EXPECT_EQ(e.top_stall, "long_scoreboard");
  EXPECT_NEAR(*e.top_stall_share, 0.8, 1e-9);
  EXPECT_EQ(e.stall_site,
            "60 % of all waiting at one place in attn_kernel: FFMA at +0x1a0 (attn.cuh:33), which "
            "may wait for LDG at +0x40, LDG at +0x50");
}

TEST(Evidence, WaitingForABulkCopyIsNoWaitForARegister) {
  Sampled stalls = sampled();
  KernelStalls& kernel = stalls.ops["attn"].kernels[0];
  kernel.places[0].place.instruction = "SYNCS";
  kernel.places[0].producers.clear();
  kernel.places[0].problem = "it waits for a barrier in shared memory";
  const Evidence e = evidence_of("attn", counted(), stalls, 132);
  EXPECT_THAT(e.top_stall, HasSubstr("bulk copy"));
  EXPECT_NEAR(*e.top_stall_share, 0.65, 1e-9);
  EXPECT_THAT(e.stall_site, HasSubstr("SYNCS at +0x1a0 (attn.cuh:33): it waits for a barrier"));
}

// The branch that asks again waits for the answer of SYNCS, which is long_scoreboard's.
TEST(Evidence, ABranchThatAsksForABulkCopyAgainWaitsForIt) {
  Sampled stalls = sampled();
  KernelStalls& kernel = stalls.ops["attn"].kernels[0];
  kernel.places[0].place.instruction = "BRA";
  kernel.places[0].producers = {{.offset = 0x190, .instruction = "SYNCS", .file = "", .line = 0}};
  const Evidence e = evidence_of("attn", counted(), stalls, 132);
  EXPECT_THAT(e.top_stall, HasSubstr("bulk copy"));
  EXPECT_NEAR(*e.top_stall_share, 0.60, 1e-9) << "the other reasons stay what they are";
  EXPECT_THAT(e.stall_site, HasSubstr("BRA at +0x1a0 (attn.cuh:33), which may wait for SYNCS"));
}

TEST(Evidence, ADeniedRightIsTheReasonOfAllThatIsMissing) {
  Counted refused;
  refused.runs[0].problem = refused.runs[1].problem = "for administrators only (35)";
  Sampled none;
  none.problem = "for administrators only (35)";
  const Evidence e = evidence_of("attn", refused, none, 132);
  EXPECT_FALSE(e.memory_bytes || e.units_active || e.compute_share || e.occupancy);
  EXPECT_EQ(e.why_no_counters, "for administrators only (35)");
  EXPECT_EQ(e.why_no_stalls, "for administrators only (35)");
  EXPECT_EQ(e.top_stall, "");
}

TEST(Evidence, AChipWithoutACounterLeavesTheOthers) {
  Counted lacking = counted();
  for (CounterRun& run : lacking.runs) {
    run.counters[0].metric = run.counters[1].metric = "";
    run.counters[0].note = "chip X has no dram__bytes_read.sum nor another";
    run.counters[1].note = "chip X has no dram__bytes_write.sum";
    for (OpCounters& op : run.ops) op.values[0] = op.values[1] = std::nullopt;
  }
  const Evidence e = evidence_of("attn", lacking, sampled(), 132);
  EXPECT_FALSE(e.memory_bytes || e.read_bytes);
  EXPECT_TRUE(e.units_active);
  EXPECT_THAT(e.why_no_counters, HasSubstr("chip X has no dram__bytes_read.sum"));
}

TEST(Evidence, AStandInSaysWhatItIs) {
  Counted other = counted();
  other.runs[1].counters[0].note = "filled from system memory";
  const Evidence e = evidence_of("attn", other, sampled(), 132);
  EXPECT_TRUE(e.read_bytes);
  EXPECT_THAT(e.notes, Contains(HasSubstr("dram_read_bytes: filled from system memory")));
}

TEST(Evidence, AnOpThatWasNotSampledSaysSo) {
  const Evidence e = evidence_of("other", counted(), sampled(), 132);
  EXPECT_THAT(e.why_no_stalls, HasSubstr("not sampled"));
}

// Recorded on an H200: attention of Qwen2.5-7B's shape at 1 and 1,641 tokens.
struct Recorded {
  explicit Recorded(const std::string& name) {
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/tests/fixtures/evidence/" + name;
    std::ifstream file(path);
    json = parse_json(std::string((std::istreambuf_iterator<char>(file)), {}), path);
    const Json& seen = json["peaks"];
    peaks = {.memory_gbps = seen["memory_gbps"],
             .cache_gbps = {},
             .gflops = seen["gflops"].get<double>(),
             .cache_bytes = seen["cache_bytes"],
             .f16_tensor_gflops = seen["f16_tensor_gflops"].get<double>()};
    evidence = evidence_of("attn", counted_from_json(json["counters"]),
                           sampled_from_json(json["stalls"]), json["units"]);
  }
  Diagnosis diagnosed() const {
    OpGrowth growth;
    growth.op = "attn";
    growth.lo_ns = json["ns"][0];
    growth.hi_ns = json["ns"][1];
    const auto cost = [&](size_t i) { return OpCost{"attn", json["bytes"][i], json["flops"][i]}; };
    const Arithmetic arithmetic =
        json["arithmetic"] == "f32" ? Arithmetic::f32 : Arithmetic::f16_tensor;
    return diagnose(decompose(growth, cost(0), cost(1), arithmetic, json["step_bytes"], peaks),
                    evidence, peaks);
  }
  Json json;
  Peaks peaks;
  Evidence evidence;
};

// One warp a split and head, four rows of keys at a time, values loaded inside the chain: the units
// are busy, the memory is not, and the warps wait for their loads.
TEST(RecordedEvidence, TheSeedsKernelWaitsForMemoryAlthoughItHasAFifthOfAWave) {
  const Recorded seed("h200_attn_seed.json");
  EXPECT_EQ(check_bytes(seed.evidence.read_bytes, seed.json["bytes"][1]), BytesCheck::as_declared);
  EXPECT_NEAR(*seed.evidence.waves, 0.21, 0.01);
  EXPECT_GT(*seed.evidence.units_active, 0.9);
  EXPECT_LT(*seed.evidence.compute_share, 0.1);
  EXPECT_EQ(seed.evidence.top_stall, "long_scoreboard");
  EXPECT_THAT(seed.evidence.stall_site, testing::AllOf(HasSubstr("attn_seed_partial_kernel"),
                                                       HasSubstr("may wait for LDG at")));
  EXPECT_EQ(seed.diagnosed().verdict, Bottleneck::memory_latency);
}

TEST(RecordedEvidence, TheProductionKernelLeavesUnitsWithoutWork) {
  const Recorded attn("h200_attn.json");
  EXPECT_EQ(attn.evidence.blocks, 64);
  EXPECT_LT(*attn.evidence.units_active, 0.5);
  const Diagnosis d = attn.diagnosed();
  EXPECT_EQ(d.verdict, Bottleneck::parallelism);
  EXPECT_THAT(d.known, Contains(HasSubstr("alone, its busiest unit works 1.15 times as long")));
}

// The same without the right to count: what was recorded of times still stands.
TEST(RecordedEvidence, WithoutCountersTheSeedsKernelIsUndetermined) {
  Recorded seed("h200_attn_seed.json");
  Counted refused;
  refused.problem = "for administrators only (35)";
  Sampled none;
  none.problem = refused.problem;
  seed.evidence = evidence_of("attn", refused, none, 132);
  const Diagnosis d = seed.diagnosed();
  EXPECT_EQ(d.verdict, Bottleneck::undetermined);
  EXPECT_THAT(d.known, Contains(HasSubstr("94.04 MB) come at 2 % of the memory's peak")));
  EXPECT_THAT(d.missing, testing::SizeIs(3));
  EXPECT_THAT(d.missing, testing::Each(HasSubstr("administrators only (35)")));
}

TEST(Evidence, CrossesAsJson) {
  Counted runs = counted();
  runs.runs[0].ops[0].values[0] = std::nullopt;
  runs.runs[1].problem = "some";
  const Json json = counted_json(runs);
  EXPECT_EQ(counted_json(counted_from_json(parse_json(dump_json(json), "here"))), json);
  const Json stalls = sampled_json(sampled());
  EXPECT_EQ(sampled_json(sampled_from_json(parse_json(dump_json(stalls), "here"))), stalls);
  EXPECT_THROW(counted_from_json(Json::object()), Error);
  EXPECT_THROW(sampled_from_json(Json{{"ops", {{"attn", 3}}}, {"problem", nullptr}}), Error);
  Json short_row = json;
  short_row["runs"][0]["ops"][0]["values"].erase(0);
  EXPECT_THROW(counted_from_json(short_row), Error);
}

}  // namespace
}  // namespace fathom::measure

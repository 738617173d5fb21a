// SPDX-License-Identifier: Apache-2.0
// A document's figures come from its samples alone: whatever else it stores is found, and so are
// the wrong measurements that samples can show.
#include "report/recompute.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "measure/statistics.hpp"
#include "report/bench_comparison.hpp"
#include "report/bench_summary.hpp"
#include "report/fields.hpp"
#include "tests/support/refused_document.hpp"

namespace fathom::report {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kCacheBytes = 32 << 20;

// What one arm of the made-up run does.
struct MadeArm {
  double ns = 1e7;
  double clock_mhz = 3000;
  double gbps_of_bytes = 20;  // declared bytes over time
};

struct MadeRun {
  std::vector<MadeArm> arms{{}, {}};
  int rounds = 12;
  double ceiling_gbps = 25;
  double most_gops = 1e9;
  std::function<void(Json& sample, size_t arm, int round)> change = [](Json&, size_t, int) {};
};

BenchRow row_of(const MadeArm& arm, size_t place) {
  BenchRow row;
  row.model_type = "llama Q4_1";
  row.type_k = row.type_v = "f16";
  row.n_gen = 16;
  row.n_depth = static_cast<int64_t>(64 * place);
  row.kv_fill = "real";
  row.n_threads = 2;
  row.seed = 1;
  row.test_bytes = static_cast<int64_t>(arm.gbps_of_bytes * arm.ns);
  row.step_bytes = int64_t{100} << 20;
  row.test_flops = 1e9;
  return row;
}

// Noise of about half a percent.
double wobble(measure::Random& random) {
  return 1 + 0.01 * (static_cast<double>(random.below(1000)) / 1000 - 0.5);
}

Json document_of(const MadeRun& run) {
  measure::Random random(7);
  Json samples = Json::array();
  std::vector<BenchRow> rows;
  for (size_t arm = 0; arm < run.arms.size(); ++arm) rows.push_back(row_of(run.arms[arm], arm));
  for (int round = 0; round < run.rounds; ++round) {
    for (size_t arm = 0; arm < run.arms.size(); ++arm) {
      Json sample{{"arm", rows[arm].test_name()},
                  {"round", round},
                  {"place", arm},
                  {"ns", std::round(run.arms[arm].ns * wobble(random))},
                  {"clock_mhz", run.arms[arm].clock_mhz},
                  {"flags", Json::array()},
                  {"kv_fill", "real"},
                  {"configuration", 0},
                  {"row", arm},
                  {"logits_hash", "00ff00ff00ff00ff"},
                  {"graph_captures", 0}};
      Json twin = sample;
      run.change(sample, arm, round);
      samples.push_back(sample);
      if (arm > 0) continue;
      twin.erase("row");
      twin["twin_of"] = 0;
      twin["arm"] = rows[0].test_name() + " (A/A)";
      twin["ns"] = std::round(run.arms[0].ns * wobble(random));
      run.change(twin, run.arms.size(), round);
      samples.push_back(twin);
    }
    samples.push_back({{"arm", "ceiling"},
                       {"configuration", 0},
                       {"round", round},
                       {"gbps", run.ceiling_gbps * wobble(random)}});
  }
  samples.push_back({{"arm", "gap"},
                     {"row", 0},
                     {"steps_ns", {1000, 2000, 1000}},
                     {"outside_ns", {20, 60, 990}}});
  if (run.arms.size() > 1) {
    samples.push_back({{"arm", "gap"},
                       {"row", 1},
                       {"waited_ns", {1000, 1000, 5000}},
                       {"ahead_ns", {900, 900, 900}},
                       {"submit_ns", {30, 40}}});
  }
  const std::vector<BenchConfiguration> configurations{{.device = "a CPU",
                                                        .cache_bytes = kCacheBytes,
                                                        .most_gops = run.most_gops,
                                                        .stop_rule = "12 rounds",
                                                        .stop = "fixed n",
                                                        .warm = true}};
  const BenchSummary summary = summarise_bench(rows, Fields(samples, "samples"), configurations, 1);
  Result document;
  document.command = {"fathom", "bench", "x.gguf", "--json"};
  document.machine = machine_json(measure::inspect_machine());
  document.samples = samples;
  document.summary = {{"seed", 1},
                      {"configurations", {configuration_json(configurations[0])}},
                      {"noise", summary.noise},
                      {"fills", summary.fills},
                      {"rows", Json::array()}};
  for (const BenchRow& row : summary.rows) {
    document.summary["rows"].push_back(bench_row_json(row));
  }
  document.gates = summary.gates;
  return parse_json(dump_json(document.to_json()), "made");
}

std::vector<std::string> failed(const Reviewed& reviewed) { return failed_gates(reviewed.gates); }

TEST(Recompute, AGoodDocumentAgreesAndIsTrusted) {
  const Reviewed reviewed = review(document_of({}));
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_THAT(failed(reviewed), IsEmpty());
  EXPECT_TRUE(reviewed.trusted());
  EXPECT_THAT(reviewed.recomputed.text, HasSubstr("tg16 @ d64"));
  EXPECT_EQ(reviewed.recomputed.summary["noise"].size(), 1u);
}

// Every figure of a row, every gate: changed in the file, it is found.
TEST(Recompute, AChangedSummaryIsFound) {
  const Json good = document_of({});
  const Json given = review(good).recomputed.summary["rows"][0];
  for (const auto& [field, value] : given.items()) {
    if (!value.is_number() || field == "seed" || field.starts_with("n_") ||
        field.starts_with("model_")) {
      continue;
    }
    if (field == "configuration" || field == "cpu_mhz") continue;
    if (field == "graph_captures" || field == "graph_replays" || field == "kernel_launches")
      continue;
    Json changed = good;
    changed["summary"]["rows"][0][field] = value.get<double>() * 1.01 + 1;
    if (field == "test_bytes" || field == "step_bytes" || field == "test_flops") {
      changed["summary"]["rows"][0][field] = value.get<int64_t>() * 2;
      if (field == "step_bytes") continue;  // only decides what is judged
    }
    EXPECT_THAT(review(changed).differences, Not(IsEmpty())) << field;
  }
  Json changed = good;
  changed["summary"]["rows"][1]["logits_hash"] = "0123456789abcdef";
  EXPECT_THAT(review(changed).differences,
              Contains(HasSubstr("summary.rows[1].logits_hash: stored \"0123456789abcdef\"")));
  changed = good;
  for (Json& gate : changed["gates"]) {
    if (gate["id"] == "ceiling") gate["value"] = 0.5;
  }
  EXPECT_THAT(review(changed).differences, Contains(HasSubstr("gates: not stored")));
  changed = good;
  changed["gates"].push_back(
      {{"id", "aa_noise"}, {"pass", true}, {"value", 0}, {"limit", 1}, {"why", "trust me"}});
  EXPECT_THAT(review(changed).differences, Contains(HasSubstr("which the samples do not give")));
}

TEST(Recompute, TheGapFollowsFromItsSteps) {
  const Json good = document_of({});
  const Json rows = review(good).recomputed.summary["rows"];
  EXPECT_DOUBLE_EQ(rows[0]["gap_pct"].get<double>(), 3) << "the median of 2, 3 and 99 %";
  EXPECT_DOUBLE_EQ(rows[1]["gap_pct"].get<double>(), 10) << "a device that waits 100 of 1000 ns";
  Json slow = good;
  slow["samples"].back()["submit_ns"] = {880};
  const Json refused = review(slow).recomputed.summary["rows"][1];
  EXPECT_TRUE(refused["gap_pct"].is_null());
  EXPECT_THAT(refused["gap_why"].get<std::string>(),
              HasSubstr("the host submits a step in 0.9 us"));
  Json without = good;
  without["samples"].erase(without["samples"].size() - 1);
  EXPECT_THAT(review(without).differences, IsEmpty()) << "earlier versions kept no steps of it";
}

TEST(Recompute, AFigureThatIsMissingIsNotedAndNoDifference) {
  Json older = document_of({});
  older["summary"].erase("noise");
  older["summary"]["rows"][0].erase("gflops");
  const Reviewed reviewed = review(older);
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_THAT(reviewed.recomputed.notes, Contains(HasSubstr("2 figures are not stored")));
}

TEST(Recompute, AChangedSampleIsFoundInTheSummary) {
  Json changed = document_of({});
  changed["samples"][0]["ns"] = 5e6;
  EXPECT_THAT(review(changed).differences, Contains(HasSubstr("summary.rows[0].avg_ns")));
  EXPECT_FALSE(review(changed).trusted());
}

TEST(Recompute, BytesFasterThanMemoryFailTheCeiling) {
  MadeRun run;
  run.arms[1].gbps_of_bytes = 30;  // of a ceiling of 25
  EXPECT_THAT(failed(review(document_of(run))),
              Contains(HasSubstr("gate ceiling failed: tg16 @ d64")));
  run.arms[1].gbps_of_bytes = 20;
  run.most_gops = 50;  // 1e9 operations in 10 ms are 100
  EXPECT_THAT(failed(review(document_of(run))), Contains(HasSubstr("GFLOP/s")));
}

// Catalogue 1: one arm ran at a clock that was 5 % lower.
TEST(Recompute, AClockThatDiffersBetweenArmsFailsItsGate) {
  MadeRun run;
  run.arms[1].clock_mhz = 2850;
  EXPECT_THAT(failed(review(document_of(run))), Contains(HasSubstr("gate clock_drift failed")));
  run.arms[1].clock_mhz = 2960;
  EXPECT_THAT(failed(review(document_of(run))), IsEmpty());
}

// Catalogue 2: many flagged samples are refused with a reason; figures stay numbers.
TEST(Recompute, ManyFlaggedSamplesFailAndFewDoNot) {
  const auto throttled = [](int every) {
    MadeRun run;
    run.change = [every](Json& sample, size_t arm, int round) {
      if (arm == 0 && round % every == 0) sample["flags"] = {"throttled"};
    };
    return document_of(run);
  };
  EXPECT_THAT(failed(review(throttled(2))), Contains(HasSubstr("6 of 12 samples flagged")));
  EXPECT_THAT(failed(review(throttled(6))), IsEmpty());
  const Json row = review(throttled(1)).recomputed.summary["rows"][0];
  EXPECT_TRUE(row["median_ts"].is_number()) << "no NaN, though every sample is flagged";
  EXPECT_EQ(row["n_flagged"], 12);
}

TEST(Recompute, ARunThatNeverSettledHasNoHeadline) {
  MadeRun run;
  run.rounds = 20;
  run.change = [](Json& sample, size_t arm, int round) {
    if (arm == 1) sample["ns"] = 1e7 * (1 + 0.02 * round);
  };
  const Reviewed reviewed = review(document_of(run));
  EXPECT_THAT(failed(reviewed), Contains(HasSubstr("gate steady failed: tg16 @ d64")));
  EXPECT_EQ(reviewed.recomputed.summary["rows"][1]["steady"], "none");
  EXPECT_TRUE(reviewed.recomputed.summary["rows"][1]["steady_ns"].is_null());
  run.change = [](Json& sample, size_t arm, int round) {
    if (arm == 1 && round < 5) sample["ns"] = 2e7;
  };
  const Json warm = review(document_of(run)).recomputed.summary["rows"][1];
  EXPECT_EQ(warm["steady"], "warm-up");
  EXPECT_NEAR(warm["steady_ns"].get<double>(), 1e7, 1e5);
}

TEST(Recompute, TwinsThatDifferFailTheNoiseGate) {
  MadeRun run;
  run.change = [&](Json& sample, size_t arm, int) {
    if (arm == 2) sample["ns"] = 1.1e7;  // the twin
  };
  EXPECT_THAT(failed(review(document_of(run))), Contains(HasSubstr("gate aa_noise failed")));
}

TEST(Recompute, OtherLogitsFailAndAreNotHidden) {
  MadeRun run;
  run.change = [](Json& sample, size_t arm, int round) {
    if (arm == 1 && round == 3) sample["logits_hash"] = "1111111111111111";
  };
  EXPECT_THAT(failed(review(document_of(run))), Contains(HasSubstr("gate output_hash failed")));
}

// Catalogue 3 and 4: bytes that stay in the cache are not called cold.
TEST(Recompute, MemoryIsColdOnlyBeyondThreeCaches) {
  const Json cold = review(document_of({})).recomputed.summary["rows"][0];
  EXPECT_EQ(cold["memory"], "cold");  // 100 MiB of steps, 32 MiB of cache
  Json warm = document_of({});
  warm["summary"]["rows"][0]["step_bytes"] = 3 * kCacheBytes - 1;
  EXPECT_EQ(review(warm).recomputed.summary["rows"][0]["memory"], "warm");
}

// Catalogue 18: a synthetic cache is set against a real one, not trusted.
TEST(Recompute, ASyntheticCacheIsSetAgainstARealOne) {
  measure::Random random(1);
  std::vector<BenchRow> rows{row_of({}, 1), row_of({}, 1)};
  rows[1].kv_fill = "synthetic";
  Json samples = Json::array();
  for (int round = 0; round < 8; ++round) {
    for (size_t row = 0; row < 2; ++row) {
      samples.push_back({{"arm", rows[row].test_name()},
                         {"row", row},
                         {"round", round},
                         {"ns", (row ? 1.02e7 : 1e7) * (1 + 0.1 * round) * wobble(random)}});
    }
  }
  const BenchSummary summary =
      summarise_bench(rows, Fields(samples, "samples"), {BenchConfiguration{}}, 1);
  ASSERT_EQ(summary.fills.size(), 1u);
  EXPECT_NEAR(summary.fills[0]["time_ratio"].get<double>(), 1.02, 0.01);
  EXPECT_LT(summary.fills[0]["ci"][1].get<double>() - summary.fills[0]["ci"][0].get<double>(),
            0.02);
}

TEST(Recompute, HostileDocumentsGetOneLine) {
  const Json good = document_of({});
  const auto refused = [&](const std::function<void(Json&)>& change) {
    return test::refusal(good, change);
  };
  EXPECT_EQ(refused([](Json& d) { d["samples"][0]["ns"] = "fast"; }),
            "samples[0].ns: expected a number, found a string");
  EXPECT_EQ(refused([](Json& d) { d["samples"][0]["ns"] = -1; }),
            "samples[0].ns: expected more than 0, found -1");
  EXPECT_EQ(refused([](Json& d) { d["samples"][0].erase("round"); }),
            "samples[0].round is missing");
  EXPECT_THAT(refused([](Json& d) { d["samples"][0]["round"] = 1; }), HasSubstr("is there twice"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0]["round"] = 999; }), HasSubstr("is missing"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0]["row"] = 2; }), HasSubstr("2 of 2"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0]["row"] = -1; }), HasSubstr("at least 0"));
  EXPECT_THAT(refused([](Json& d) { d["samples"].back()["ahead_ns"] = Json::array(); }),
              HasSubstr("expected times of steps"));
  EXPECT_THAT(refused([](Json& d) { d["samples"].back()["ahead_ns"][0] = 0; }),
              HasSubstr("ahead_ns[0]"));
  EXPECT_THAT(refused([](Json& d) { d["samples"].back()["row"] = 2; }), HasSubstr("2 of 2"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][d["samples"].size() - 2]["outside_ns"] = {1}; }),
              HasSubstr("one for each step"));
  for (const double size : {1e300, 1e-300}) {
    EXPECT_THAT(refused([&](Json& d) { d["samples"][0]["ns"] = size; }),
                HasSubstr("from 1e-150 to 1e150"));
  }
  EXPECT_THAT(refused([](Json& d) { d["samples"] = 5; }), HasSubstr("expected an array"));
  EXPECT_THAT(refused([](Json& d) { d["samples"][0] = nullptr; }), HasSubstr("expected an object"));
  EXPECT_THAT(refused([](Json& d) { d["samples"] = Json::array(); }), HasSubstr("has no samples"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["rows"][0]["n_seqs"] = 0; }),
              HasSubstr("at least 1"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["rows"][0]["configuration"] = 7; }),
              HasSubstr("7 of 1"));
  EXPECT_THAT(refused([](Json& d) { d["schema"] = "fathom-result/2"; }),
              HasSubstr("expected fathom-result/1"));
  EXPECT_THAT(refused([](Json& d) { d["command"] = Json::array(); }), HasSubstr("command"));
  EXPECT_THAT(refused([](Json& d) { d["gates"][0]["pass"] = 1; }), HasSubstr("true or false"));
  EXPECT_THAT(refused([](Json& d) { d = Json::array(); }), HasSubstr("expected an object"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["seed"] = -3; }), HasSubstr("at least 0"));
}

TEST(Recompute, ADocumentWithoutSamplesHasNothingToRecompute) {
  Json document = document_of({});
  document["samples"] = Json::array();
  document["summary"] = {{"tokens", Json::array()}};
  const Reviewed reviewed = review(document);
  EXPECT_THAT(reviewed.recomputed.notes, Contains(HasSubstr("nothing to recompute")));
  EXPECT_EQ(reviewed.n_stored, document["gates"].size());
}

// Documents of before samples said their row.
TEST(Recompute, AnEarlierDocumentIsCheckedAsFarAsItsSamplesGo) {
  Json document = document_of({});
  Json samples = Json::array();
  for (const Json& sample : document["samples"]) {
    if (sample.contains("twin_of") || sample["arm"] == "gap") continue;
    Json plain = sample;
    for (const char* key :
         {"row", "logits_hash", "clock_mhz", "flags", "place", "graph_captures"}) {
      plain.erase(key);
    }
    samples.push_back(plain);
  }
  document["samples"] = samples;
  document["summary"].erase("configurations");
  document["summary"]["orders"] = {Json::array()};
  EXPECT_THAT(review(document).differences, IsEmpty());
  EXPECT_THAT(review(document).recomputed.notes, Contains(HasSubstr("earlier version")));
  document["summary"]["rows"][1]["p95_ns"] = 1;
  EXPECT_THAT(review(document).differences, Contains(HasSubstr("summary.rows[1].p95_ns")));
}

TEST(Recompute, PerplexityFromItsScores) {
  Json document = document_of({});
  document["command"] = {"fathom", "perplexity", "x.gguf"};
  document["samples"] = {{{"arm", "nll"}, {"values", {1.0, 2.0, 3.0}}}};
  const Json spread = spread_json({1, 2, 3});
  document["summary"] = {{"perplexity", std::exp(2.0)},
                         {"perplexity_stderr", std::exp(2.0) * std::sqrt(1.0 / 3)},
                         {"nll", spread},
                         {"scored_tokens", 3}};
  document["gates"] = Json::array();
  EXPECT_THAT(review(document).differences, IsEmpty());
  document["summary"]["perplexity"] = 7;
  EXPECT_THAT(review(document).differences, testing::ElementsAre(HasSubstr("summary.perplexity")));
}

Json process_samples(double ours, double baseline, int rounds) {
  measure::Random random(3);
  Json samples = Json::array();
  for (int round = 0; round < rounds; ++round) {
    const double minute = 1 + 0.5 * static_cast<double>(random.below(1000)) / 1000;
    for (const char* side : {"ours", "twin", "baseline"}) {
      const double ns = std::string(side) == "baseline" ? baseline : ours;
      samples.push_back({{"arm", "tg16"},
                         {"key", "0 tg16"},
                         {"side", side},
                         {"tokens", 16},
                         {"logits_hash", ns == ours ? "0a" : "0b"},
                         {"round", round},
                         {"ns", ns * minute * wobble(random)}});
    }
  }
  return samples;
}

TEST(Recompute, ProcessesInTurnsArePairedByTheirRounds) {
  const auto verdict = [](double ours, double baseline, int rounds) {
    const Json samples = process_samples(ours, baseline, rounds);
    return compare_processes(Fields(samples, "samples")).at(0);
  };
  const RowComparison faster = verdict(0.9e7, 1e7, 8);
  EXPECT_EQ(faster.time.verdict, measure::Verdict::faster) << faster.time.why;
  EXPECT_NEAR(1 / faster.time.ratio, 1 / 0.9, 0.02);
  EXPECT_EQ(verdict(1e7, 0.9e7, 8).time.verdict, measure::Verdict::slower);
  EXPECT_EQ(verdict(1e7, 1e7, 30).time.verdict, measure::Verdict::same);
  EXPECT_EQ(verdict(0.9e7, 1e7, 5).time.verdict, measure::Verdict::cannot_tell);
  const std::vector<Gate> gates = process_gates({faster});
  ASSERT_EQ(gates.size(), 2u);
  EXPECT_EQ(gates[0].id, "aa_noise");
  EXPECT_THAT(gates[1].why, HasSubstr("all of ours end with logits 0a, the baseline's with 0b"));
}

}  // namespace
}  // namespace fathom::report

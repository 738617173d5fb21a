// SPDX-License-Identifier: Apache-2.0
// The shapes of the report: what is shown when it closes, what is withheld when it does not, and
// text of others that must not become markup.
#include "report/attribution_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/attribution_gates.hpp"
#include "report/charts.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

using testing::HasSubstr;
using testing::Not;

measure::OpGrowth op(const char* name, double lo_ns, double hi_ns) {
  measure::OpGrowth out;
  out.op = name;
  out.launches_lo = out.launches_hi = 2;
  out.lo_ns = lo_ns;
  out.hi_ns = hi_ns;
  out.growth = {hi_ns - lo_ns, {hi_ns - lo_ns - 900, hi_ns - lo_ns + 900}};
  out.layer_growth_ns = {(hi_ns - lo_ns) / 2, (hi_ns - lo_ns) / 2};
  return out;
}

// attn grows by 400 us, qkv by nothing; 1 us is left over.
AttributionReport report() {
  AttributionReport r;
  r.model = "tiny <script>alert(1)</script>";
  r.backend = "cpu";
  r.device = "some CPU";
  r.depths = {64, 1641};
  r.kv_fill = {"real", "real"};
  r.kv_bytes = {65, 1642};
  r.block_steps = {3, 2};
  r.stopped = "precision";
  measure::Attribution& a = r.attribution;
  a.untraced_ns = {1'000'000, 1'401'000};
  a.untraced_ci = {{999'000, 1'001'000}, {1'400'000, 1'402'000}};
  a.ops = {op("attn", 200'000, 600'000), op("qkv", 300'000, 300'000)};
  a.closure.growth = {401'000, {400'000, 402'000}};
  a.closure.unwatched_ns[0] = 1'000'000;
  a.closure.unwatched_ns[1] = 1'401'000;
  a.closure.sum = {400'000, {399'000, 401'000}};
  a.closure.residual = {1'000, {-500, 2'500}};
  a.closure.limit_ns = 8'020;
  a.closure.limit_why = "2 % of the growth";
  a.closure.closes = a.closure.precise = true;
  a.closure.terms = {{"watched steps take longer", 900}};
  a.line = {984'000, 254, {0, 0}};
  r.peaks = {.memory_gbps = 20, .cache_gbps = 60, .gflops = 100, .cache_bytes = 1'000'000};
  r.costs_lo = {{"attn", 150'000, 300'000}, {"qkv", 5'000'000, 10'000'000}};
  r.costs_hi = {{"attn", 3'800'000, 7'600'000}, {"qkv", 5'000'000, 10'000'000}};
  r.decompositions = {measure::decompose(a.ops[0], r.costs_lo[0], r.costs_hi[0], Arithmetic::f32,
                                         9'000'000, r.peaks)};
  r.diagnoses = {{"attn", measure::Bottleneck::undetermined, {"rates are low"}, {"counters"}}};
  r.gates = {{.id = "additivity", .pass = true, .value = 1.0, .limit = 8.02, .why = "closes"}};
  return r;
}

AttributionReport open_report() {
  AttributionReport r = report();
  r.attribution.closure.closes = false;
  r.gates.front().pass = false;
  r.diagnoses.clear();
  return r;
}

TEST(AttributionReport, TheTableClosesAndNamesWhatGrows) {
  const std::string text = attribution_text(report(), false);
  EXPECT_THAT(text, HasSubstr("attn"));
  EXPECT_THAT(text, HasSubstr("+400.00 ± 0.90"));
  EXPECT_THAT(text, HasSubstr("+200.00")) << "a launch";
  EXPECT_THAT(text, HasSubstr("left over"));
  EXPECT_THAT(text, HasSubstr("attn: undetermined"));
  EXPECT_THAT(text, HasSubstr("missing  counters"));
  EXPECT_THAT(text, HasSubstr("lever"));
}

TEST(AttributionReport, ThePeaksAreToldWhateverGrows) {
  AttributionReport r = report();
  r.peaks = {.memory_gbps = 4730,
             .cache_gbps = 9100.0,
             .gflops = 50'000.0,
             .cache_bytes = 60'000'000,
             .f16_tensor_gflops = 800'000.0,
             .int8_tensor_gops = 1'600'000.0};
  const char* const line =
      "Peaks of this run: memory 4730.0 GB/s, cache 9100.0 GB/s, f32 50000 GFLOP/s, f16 tensor "
      "800000 GFLOP/s, int8 tensor 1600000 Gop/s.\n";
  EXPECT_THAT(attribution_text(r, false), HasSubstr(line));
  r.decompositions.clear();
  EXPECT_THAT(attribution_text(r, false), HasSubstr(line)) << "nothing grows";
  r.peaks.memory_gbps = 0;
  EXPECT_THAT(attribution_text(r, false), Not(HasSubstr("Peaks"))) << "none were measured";
}

TEST(AttributionReport, WindowsThatWereMeasuredAgainAreTold) {
  AttributionReport r = report();
  EXPECT_THAT(attribution_text(r, false), Not(HasSubstr("measured again")));
  r.refused_windows = 1;
  const char* const one = "1 watched window had lost or broken records and was measured again.";
  EXPECT_THAT(attribution_text(r, false), HasSubstr(one));
  EXPECT_THAT(attribution_html(r, {{"command", {"fathom"}}}), HasSubstr(one));
  r.refused_windows = 3;
  EXPECT_THAT(attribution_text(r, false), HasSubstr("3 watched windows had"));
}

TEST(AttributionReport, ASumThatDoesNotCloseGetsTermsAndNoDiagnosis) {
  const std::string text = attribution_text(open_report(), false);
  EXPECT_THAT(text, HasSubstr("The sum does not close"));
  EXPECT_THAT(text, HasSubstr("watched steps take longer"));
  EXPECT_THAT(text, HasSubstr("No diagnosis"));
  EXPECT_THAT(text, Not(HasSubstr("lever")));
  const std::string page = attribution_html(open_report(), {{"command", {"fathom"}}});
  EXPECT_THAT(page, HasSubstr("cannot be trusted"));
  EXPECT_THAT(page, Not(HasSubstr("Lever:")));
}

TEST(AttributionReport, NamesNeverBecomeMarkup) {
  const Json document{{"command", {"fathom", "</script><script>alert(2)"}}};
  const std::string page = attribution_html(report(), document);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(2)"));
}

AttributionReport counted_report() {
  AttributionReport r = report();
  measure::Evidence e;
  e.read_bytes_lo = 0.2e6;
  e.read_bytes = e.memory_bytes = 3.9e6;
  e.units_active = 0.97;
  e.compute_share = 0.12;
  e.compute_pipe = "FMA pipe";
  e.top_stall = "long_scoreboard";
  e.top_stall_share = 0.83;
  r.evidence = {{"attn", 3'800'000, e}};
  r.attribution.ops.push_back(op("out", 300'000, 200'000));
  r.overlaps = {{"out", "attn", 1'000, 91'000}, {"qkv", "attn", 1'000, 200'000}};
  r.eager = measure::EagerSteps{{1'500'000, 1'900'000}};
  return r;
}

TEST(AttributionReport, TheEvidenceStandsInTextPageAndJson) {
  const AttributionReport r = counted_report();
  const std::string text = attribution_text(r, false);
  const std::string page = attribution_html(r, {{"command", {"fathom"}}});
  for (const std::string& out : {text, page}) {
    EXPECT_THAT(out, HasSubstr("1.03 x, as declared"));
    EXPECT_THAT(out, HasSubstr("FMA pipe 12 %"));
    EXPECT_THAT(out, HasSubstr("long_scoreboard 83 %"));
    EXPECT_THAT(out, HasSubstr("out starts before attn ends: 1.00 µs of it run under others"));
    EXPECT_THAT(out, HasSubstr("−100 µs and +400 µs, +300 µs together"));
    EXPECT_THAT(out, Not(HasSubstr("qkv starts"))) << "it does not shrink";
    EXPECT_THAT(out, HasSubstr("launched one by one, unwatched, a step takes 1.50 ms"));
  }
  const Json json = attribution_json(r);
  EXPECT_EQ(json["evidence"][0]["bytes_check"], "as declared");
  EXPECT_TRUE(json["evidence"][0]["occupancy"].is_null());
  EXPECT_EQ(json["overlaps"][0]["under"], "attn");
  EXPECT_EQ(json["eager_ns"][1], 1'900'000);
}

TEST(AttributionReport, FewerBytesThanDeclaredAreNoCacheWherePrefetchesAreNotCounted) {
  AttributionReport r = report();
  measure::Evidence e;
  e.read_bytes = 1.9e6;
  e.reads_prefetch = false;
  e.instructions_per_cycle = 1.5;
  r.evidence = {{"attn", 3'800'000, e}};
  EXPECT_THAT(attribution_text(r, false), HasSubstr("0.50 x, cached or prefetched"));
  const Json json = attribution_json(r)["evidence"][0];
  EXPECT_EQ(json["bytes_check"], "cached or prefetched");
  EXPECT_EQ(json["instructions_per_cycle"], Json({nullptr, 1.5}));
}

TEST(AttributionReport, MissingEvidenceSaysWhyOnce) {
  AttributionReport r = report();
  measure::Evidence e;
  e.why_no_counters = e.why_no_stalls = "for administrators only (35)";
  r.evidence = {{"attn", 3'800'000, e}, {"qkv", 1'000, e}};
  const std::string text = attribution_text(r, false);
  EXPECT_THAT(text, HasSubstr("There are no counters: for administrators only (35)."));
  EXPECT_THAT(text, HasSubstr("There are no stalls: for administrators only (35)."));
  EXPECT_THAT(text, Not(HasSubstr("counted in"))) << "a table of nothing";
  EXPECT_THAT(missing_evidence(r), testing::SizeIs(2));
  EXPECT_TRUE(attribution_json(r)["evidence"][0]["bytes_check"].is_null());
}

TEST(AttributionReport, AMachineThatFailsAGateMarksButStillExplains) {
  AttributionReport r = counted_report();
  r.watermark = "measured on a GPU that is not idle: it is 40 % busy";
  r.machine_gates = {
      {.id = "gpu_idle", .pass = false, .value = {}, .limit = {}, .why = "it is 40 % busy"}};
  EXPECT_TRUE(r.trusted());
  EXPECT_EQ(r.all_gates().size(), 2u);
  EXPECT_THAT(attribution_text(r, false),
              testing::StartsWith("measured on a GPU that is not idle"));
  const std::string page = attribution_html(r, {{"command", {"fathom"}}});
  EXPECT_THAT(page, HasSubstr("not idle: it is 40 % busy</b>"));
  EXPECT_THAT(page, HasSubstr("✗ failed"));
}

Confirmation confirmation(const char* knob) {
  return {.knob = knob,
          .basis = "bytes",
          .effects = {{"attn in the engine", 2e5, 1e5, {}, {9e4, 11e4}}},
          .probed_op = "attn",
          .probed = {{"hot", 20, 10, {}, {}}},
          .engine_ratio = 0.6,
          .gaps = {"they agree"},
          .problem = {}};
}

TEST(AttributionReport, AChangedKernelThatIsNotTheEnginesWithholdsItsConfirmationAlone) {
  AttributionReport r = report();
  r.confirmations.push_back(confirmation("splits 32 -> 64"));
  add_confirmation_gate(
      r, {.id = "verbatim_changed", .pass = true, .value = {}, .limit = {}, .why = "same"});
  r.confirmations.push_back(confirmation("warps 1 -> 8"));
  add_confirmation_gate(r, {.id = "verbatim_changed",
                            .pass = false,
                            .value = {},
                            .limit = {},
                            .why = "grid: 7 in the engine, 8 in the probe"});
  EXPECT_TRUE(r.trusted()) << "the base's kernel is the engine's";
  EXPECT_FALSE(r.all_gates().back().pass) << "exit status 4";
  const std::string text = attribution_text(r, false);
  EXPECT_THAT(text, HasSubstr("attn: undetermined"));
  EXPECT_THAT(text, HasSubstr("attn alone, hot: 20.00")) << "the first stands";
  EXPECT_THAT(text, HasSubstr("confirm warps 1 -> 8\n  withheld: grid: 7 in the engine"));
  const Json json = attribution_json(r)["confirmations"];
  EXPECT_EQ(json[0]["engine_ratio"], 0.6);
  EXPECT_TRUE(json[0]["problem"].is_null());
  EXPECT_TRUE(json[1]["effects"].empty());
  EXPECT_TRUE(json[1]["probed"].empty());
  EXPECT_TRUE(json[1]["engine_ratio"].is_null());
  EXPECT_THAT(attribution_html(r, {{"command", {"fathom"}}}), HasSubstr("<p>withheld: grid: 7"));
}

TEST(AttributionReport, JsonHoldsTheClosureAndThePlaceOfEveryFigure) {
  const Json json = attribution_json(report());
  EXPECT_EQ(json["closure"]["residual"]["ns"], 1'000);
  EXPECT_EQ(json["ops"][0]["op"], "attn");
  EXPECT_EQ(json["decompositions"][0]["op"], "attn");
  EXPECT_EQ(json["diagnoses"][0]["verdict"], "undetermined");
  EXPECT_TRUE(json["confirmations"].empty());
}

TEST(Charts, TheWaterfallEndsWhereItsStepsLead) {
  const Waterfall data{.from = "depth 64",
                       .to = "depth 1641",
                       .from_ns = 100,
                       .to_ns = 200,
                       .steps = {{"attn", 95, 94, 96}, {"qkv", 3, 2, 4}},
                       .residue_ns = 2,
                       .limit_ns = 4,
                       .closes = true};
  const std::string svg = draw_waterfall(data).str();
  for (const char* part :
       {"left over", "attn", "class=\"band\"", "class=\"residue\"", "role=\"img\"", "<desc id="}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(draw_waterfall(data).file(), HasSubstr("<style>"));
}

TEST(Charts, TicksAreRound) {
  EXPECT_THAT(ticks(0, 10, 5), testing::ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(-0.03, 0.06, 4), testing::SizeIs(testing::Ge(3)));
}

TEST(TimeText, HasAUnitAndFewDigits) {
  EXPECT_EQ(time_text(950), "950 ns");
  EXPECT_EQ(time_text(12'340), "12.3 µs");
  EXPECT_EQ(time_text(9'876'000), "9.88 ms");
  EXPECT_EQ(signed_time_text(-4'560'000), "−4.56 ms");
}

// Field 1 of 3 bytes: {10: 1, 13: 1, 60: {1: 1, 2: "a"}} and so on, read by hand from the format.
TEST(Perfetto, EncodesTracksAndNestsOverlapOnLanes) {
  const std::string one = perfetto_trace({{"a", {}}});
  EXPECT_EQ(one, std::string("\x0a\x0c\xe2\x03\x05\x08\x01\x12\x01\x61\x50\x01\x68\x01", 14));
  const std::string two = perfetto_trace({{"a", {{"x", 5, 10, {}}, {"y", 7, 12, {}}}}});
  EXPECT_THAT(two, HasSubstr("lane 2")) << "they overlap";
  EXPECT_THAT(perfetto_trace({{"a", {{"x", 5, 10, {}}, {"y", 10, 12, {}}}}}),
              Not(HasSubstr("lane 2")));
}

}  // namespace
}  // namespace fathom::report

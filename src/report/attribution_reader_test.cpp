// SPDX-License-Identifier: Apache-2.0
// A document of `attribute` made from a program of known truth: its figures follow from its blocks,
// and no others do.
#include "report/attribution_reader.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "measure/evidence.hpp"
#include "measure/observation_json.hpp"
#include "measure/op_trace.hpp"
#include "report/attribution_gates.hpp"
#include "report/recompute.hpp"
#include "tests/support/refused_document.hpp"
#include "tests/support/synthetic_program.hpp"

namespace fathom::report {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<int64_t> kDepths{64, 500, 1641};

// Two layers in which attn grows by 40 us each and the rest not at all.
test::SyntheticProgram program() {
  test::SyntheticProgram out;
  out.noise = 0.02;
  out.watching_ns = 400;
  for (int layer = 0; layer < 2; ++layer) {
    out.ops.push_back({"qkv", layer, {50'000, 50'000, 50'000}, 300});
    out.ops.push_back({"attn", layer, {20'000, 30'000, 60'000}, 300});
  }
  return out;
}

measure::Observation observed(test::SyntheticProgram program, size_t n_depths = kDepths.size()) {
  measure::OpTrace trace(20'000, program.clock());
  measure::ObserveOptions options;
  options.n_depths = n_depths;
  options.source = &trace;
  options.block_ns = 1e6;
  options.min_rounds = options.max_rounds = 12;
  options.clock = program.clock();
  return measure::observe(program, options);
}

// Quoted first, then watched in rounds in which attn takes a little longer at depth.
measure::Observation observed_apart(const test::SyntheticProgram& from) {
  test::SyntheticProgram watching = from;
  watching.noise = 0.01;
  for (test::SyntheticOp& op : watching.ops) {
    op.ns.erase(op.ns.begin() + 1);
    if (std::string(op.name) == "attn") op.ns[1] += 200;
  }
  measure::Observation out = observed(from);
  for (measure::DepthSamples& depth : out.depths) depth.traced.clear();
  measure::add_watched(out, observed(std::move(watching), 2));
  return out;
}

AttributionReport report_of(const measure::Observation& o) {
  AttributionReport r;
  r.model = "made up";
  r.backend = "cpu";
  r.device = "some CPU";
  r.kv_type = "f16";
  r.depths = kDepths;
  r.kv_token_bytes = 2000;
  for (size_t i = 0; i < kDepths.size(); ++i) {
    r.kv_fill.push_back("real");
    r.kv_bytes.push_back(r.kv_token_bytes * (kDepths[i] + 1));
    r.block_steps.push_back(static_cast<int64_t>(o.depths[i].untraced.front()[0].steps_ns.size()));
  }
  r.rounds = o.n_rounds();
  r.stopped = o.stopped;
  r.seed = o.seed;
  r.attribution = measure::attribute(o, {65, 501, 1642});
  r.peaks = {.memory_gbps = 25, .cache_gbps = 60.0, .gflops = 200.0, .cache_bytes = 100'000};
  r.costs_lo = {{"qkv", 500'000, 1'000'000}, {"attn", 2000 * 65, 400'000}};
  r.costs_hi = {{"qkv", 500'000, 1'000'000}, {"attn", 2000 * 1642, 9'000'000}};
  const measure::OpGrowth& attn = r.attribution.ops.front();
  r.decompositions = {{.op = "attn",
                       .bytes_lo = r.costs_lo[1].bytes,
                       .bytes_hi = r.costs_hi[1].bytes,
                       .flops_lo = r.costs_lo[1].flops,
                       .flops_hi = r.costs_hi[1].flops,
                       .lo = {attn.lo_ns, 2000 * 65 / 25.0, 400'000 / 200.0},
                       .hi = {attn.hi_ns, 2000 * 1642 / 25.0, 9'000'000 / 200.0},
                       .residence = measure::Residence::memory,
                       .arithmetic = Arithmetic::f32}};
  r.gates = attribution_gates(r);
  r.gates.push_back(plan_gate(r, {}));
  if (r.trusted()) {
    r.diagnoses = {{"attn", measure::Bottleneck::undetermined, {"rates are low"}, {"counters"}}};
  }
  return r;
}

// What --confirm adds: an engine in which attn grows by a quarter of that.
constexpr int64_t kChangedNs[] = {20'000, 22'500, 30'000};

test::SyntheticProgram changed_program() {
  test::SyntheticProgram out = program();
  for (test::SyntheticOp& op : out.ops) {
    if (std::string(op.name) == "attn") op.ns.assign(std::begin(kChangedNs), std::end(kChangedNs));
  }
  return out;
}

Json with_confirmation(Json document, bool apart = false) {
  const measure::Observation o =
      apart ? observed_apart(changed_program()) : observed(changed_program());
  Json kept = Json::array();
  for (const Json& sample : document["samples"]) {
    if (sample["configuration"] == 0) kept.push_back(sample);
  }
  for (const Json& sample : measure::observation_samples(o, kDepths, 1)) kept.push_back(sample);
  document["samples"] = kept;
  document["summary"]["changed_observations"] =
      Json::array({measure::observation_header(o, kDepths)});
  const measure::Attribution after = measure::attribute(o, {65, 501, 1642});
  const Json attribution = document["summary"]["attribution"];
  const auto effect = [](const char* what, double base, const measure::Estimate& e) {
    return Json{{"what", what},
                {"base_ns", base},
                {"changed_ns", e.value},
                {"changed_ci_ns", {e.interval.lo, e.interval.hi}},
                {"predicted_ns", {15'000, 25'000}}};
  };
  const Json& before = attribution["ops"][0];
  const double hi = before["ns"][1], lo = before["ns"][0];
  document["summary"]["attribution"]["confirmations"] = {
      {{"knob", "splits 32 -> 64"},
       {"basis", "bytes"},
       {"effects",
        {effect("attn in the engine", hi - lo, after.ops.front().growth),
         effect("the unwatched step", attribution["closure"]["growth"]["ns"],
                after.closure.growth)}},
       {"probed_op", "attn"},
       {"probed", Json::array()},
       {"engine_ratio", after.ops.front().hi_ns / hi},
       {"gaps", {"they agree"}},
       {"problem", nullptr}}};
  document["gates"].push_back({{"id", "verbatim_changed"},
                               {"pass", true},
                               {"value", nullptr},
                               {"limit", nullptr},
                               {"why", "same"}});
  return document;
}

Json document_of(const measure::Observation& o) {
  const AttributionReport r = report_of(o);
  Result document;
  document.command = {"fathom", "attribute", "x.gguf", "--json"};
  document.machine = machine_json(measure::inspect_machine());
  document.samples = measure::observation_samples(o, kDepths);
  for (const double gbps : {26.0, 25.0, 24.0}) {
    document.samples.push_back(
        {{"arm", "ceiling"}, {"configuration", 0}, {"round", 0}, {"gbps", gbps}});
  }
  // What --confirm adds; none of it is the first configuration's.
  document.samples.push_back(
      {{"arm", "ceiling"}, {"configuration", 1}, {"round", 0}, {"gbps", 99}});
  for (Json& sample : measure::observation_samples(o, kDepths, 1)) {
    for (Json& value : sample["values"]) value = value.get<int64_t>() * 2;
    document.samples.push_back(std::move(sample));
  }
  document.summary["observation"] = measure::observation_header(o, kDepths);
  document.summary["attribution"] = attribution_json(r);
  document.gates = r.gates;
  return parse_json(dump_json(document.to_json()), "made");
}

const Json& good() {
  static const Json document = document_of(observed(program()));
  return document;
}

TEST(AttributionReader, AGoodDocumentAgreesAndPrintsTheTable) {
  const Reviewed reviewed = review(good());
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_EQ(reviewed.n_missing, 0u);
  EXPECT_EQ(reviewed.n_stored, 1u) << "gate plan: hashes are no samples";
  EXPECT_TRUE(reviewed.trusted()) << testing::PrintToString(failed_gates(reviewed.gates));
  EXPECT_THAT(reviewed.recomputed.text,
              testing::StartsWith(attribution_text(report_of(observed(program())), false)));
  EXPECT_THAT(reviewed.recomputed.text,
              HasSubstr("Peaks of this run: memory 25.0 GB/s, cache 60.0 GB/s, f32 200 GFLOP/s."));
  const std::string page = page_of(good());
  EXPECT_THAT(page, HasSubstr("waterfall"));
  EXPECT_EQ(page, attribution_html(report_of(observed(program())), good()));
}

// As a host counts them, whose stalls nobody samples.
TEST(AttributionReader, CountersOfAHostAreReadBack) {
  measure::Counted counted;
  for (CounterRun& run : counted.runs) {
    const auto add = [&](const char* name) {
      run.counters.push_back({.name = name, .unit = "", .metric = name, .scale = 1, .note = ""});
    };
    add("cpu_cycles");
    add("cpu_instructions");
    add("llc_read_miss_bytes");
    run.ops = {{.op = "attn", .layer = -1, .values = {1000, 1500, 1'641'000}}};
  }
  measure::Sampled sampled;
  sampled.problem = "nobody samples";
  Json document = good();
  document["summary"]["watched"] = {{"counters", measure::counted_json(counted)},
                                    {"stalls", measure::sampled_json(sampled)}};
  document["summary"]["attribution"]["evidence"] = {
      {{"op", "attn"}, {"declared_bytes", 2000 * 1641}, {"units", nullptr}}};
  EXPECT_THAT(review(document).recomputed.text,
              testing::AllOf(HasSubstr("0.50 x, cached or prefetched"),
                             HasSubstr("There are no stalls: nobody samples.")));
}

// A verdict is a figure too: what the evidence of the file does not give is told.
TEST(AttributionReader, ADiagnosisFollowsFromItsEvidence) {
  Json document = good();
  document["summary"]["attribution"]["evidence"] = {{{"op", "attn"},
                                                     {"declared_bytes", 2000 * 1641},
                                                     {"units", nullptr},
                                                     {"why_no_counters", "no PMU"}}};
  Json& diagnosis = document["summary"]["attribution"]["diagnoses"][0];
  ASSERT_EQ(diagnosis["op"], "attn");
  diagnosis["verdict"] = "compute";
  diagnosis["lever"] = measure::lever_of(measure::Bottleneck::compute);
  diagnosis["known"] = {"nothing"};
  EXPECT_THAT(review(document).differences,
              testing::AllOf(Contains(HasSubstr("diagnoses[0].verdict")),
                             Contains(HasSubstr("diagnoses[0].known"))));
}

TEST(AttributionReader, SaysHowTheStepsSpread) {
  // 12 rounds of two blocks; what differs is one step from the next.
  EXPECT_THAT(spread_text(good()),
              testing::AllOf(HasSubstr("depth 64: 168 unwatched steps, p50 141 µs, p90 142 µs, "),
                             HasSubstr("too few for p99; variance between rounds 0 %, blocks "),
                             HasSubstr("depth 1641: ")));
  Json slow = good();
  for (Json& sample : slow["samples"]) {
    if (sample["arm"] != "untraced" || sample["round"] != 3) continue;
    for (Json& value : sample["values"]) value = value.get<int64_t>() * 2;
  }
  EXPECT_THAT(spread_text(slow), HasSubstr("more rounds would take most"));
}

// Every number of the summary, changed by a thousandth.
TEST(AttributionReader, AChangedFigureIsFound) {
  const Json flat = review(good()).recomputed.summary["attribution"].flatten();
  size_t n_changed = 0;
  for (const auto& [path, value] : flat.items()) {
    if (!value.is_number()) continue;
    // What is declared cannot be told from a change of it.
    if (path.ends_with("/depth") || path.ends_with("/kv_bytes")) continue;
    if (path.find("/flops/") != std::string::npos) continue;
    Json bad = good();
    Json& figure = bad["summary"]["attribution"][Json::json_pointer(path)];
    figure = value.is_number_integer() ? Json(value.get<int64_t>() + 1)
                                       : Json(value.get<double>() * 1.001 + 0.001);
    ++n_changed;
    ASSERT_THAT(review(bad).differences, Contains(HasSubstr("summary.attribution."))) << path;
  }
  EXPECT_EQ(n_changed, 138u);
}

TEST(AttributionReader, ADiagnosisInSpiteOfAGateIsFound) {
  test::SyntheticProgram changed = program();
  changed.sleep = [](size_t depth, bool watched) { return depth == 2 && !watched ? 9'000 : 0; };
  Json open = document_of(observed(changed));
  EXPECT_THAT(review(open).differences, IsEmpty());
  EXPECT_THAT(failed_gates(review(open).gates), Contains(HasSubstr("additivity")));
  EXPECT_THAT(review(open).recomputed.text, HasSubstr("No diagnosis: a gate failed"));
  open["summary"]["attribution"]["diagnoses"] = good()["summary"]["attribution"]["diagnoses"];
  EXPECT_THAT(review(open).differences, Contains(HasSubstr("attribution.diagnoses")));
  for (Json& gate : open["gates"]) gate["pass"] = true;
  EXPECT_THAT(review(open).differences, Contains(HasSubstr("additivity failed")));
}

TEST(AttributionReader, ASleepOfTheHostIsDiagnosedFromSamplesAlone) {
  test::SyntheticProgram sleeps = program();
  sleeps.sleep = [](size_t depth, bool) { return depth == 2 ? 200'000 : 0; };
  const Json document = document_of(observed(sleeps));  // made without this diagnosis
  EXPECT_THAT(review(document).differences, Contains(HasSubstr("attribution.diagnoses")));
  EXPECT_THAT(review(document).recomputed.text, HasSubstr("gaps: launch"));
}

TEST(AttributionReader, AChangedSampleIsFound) {
  Json slow = good();
  for (Json& sample : slow["samples"]) {
    if (sample["arm"] != "untraced" || sample["depth"] != 1641 || sample["configuration"] != 0)
      continue;
    for (Json& value : sample["values"]) value = value.get<int64_t>() + 1000;
  }
  EXPECT_THAT(review(slow).differences,
              testing::AllOf(Contains(HasSubstr("attribution.depths[2].ns")),
                             Contains(HasSubstr("attribution.closure.growth.ns")),
                             Contains(HasSubstr("attribution.line.slope_ns"))));
  Json ceiling = good();
  for (Json& sample : ceiling["samples"]) {
    if (sample["arm"] == "ceiling" && sample["configuration"] == 0) sample["gbps"] = 12;
  }
  EXPECT_THAT(review(ceiling).differences,
              testing::AllOf(Contains(HasSubstr("peaks.memory_gbps")),
                             Contains(HasSubstr("decompositions[0].parts[1].bytes_ns"))));
}

TEST(AttributionReader, AConfirmationFollowsFromItsSamples) {
  const Json confirmed = with_confirmation(good());
  const Reviewed reviewed = review(confirmed);
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_THAT(reviewed.recomputed.text, HasSubstr("confirm splits 32 -> 64"));
  const Json& figures = reviewed.recomputed.summary["attribution"]["confirmations"][0];
  EXPECT_NEAR(figures["effects"][0]["changed_ns"].get<double>(), 20'000, 500);
  EXPECT_NEAR(figures["engine_ratio"].get<double>(), 0.5, 0.02);
  const Json flat = figures.flatten();
  size_t n_changed = 0;
  for (const auto& [path, value] : flat.items()) {
    if (!value.is_number()) continue;
    Json bad = confirmed;
    Json& figure = bad["summary"]["attribution"]["confirmations"][0][Json::json_pointer(path)];
    figure = value.get<double>() * 1.001;
    ++n_changed;
    ASSERT_THAT(review(bad).differences, Contains(HasSubstr("attribution.confirmations[0].")))
        << path;
  }
  EXPECT_EQ(n_changed, 1u + 2 * 4) << "the ratio, and each effect's two values and interval";
  Json slow = confirmed;
  for (Json& sample : slow["samples"]) {
    if (sample["configuration"] != 1 || sample["arm"] != "untraced" || sample["depth"] != 1641)
      continue;
    for (Json& value : sample["values"]) value = value.get<int64_t>() + 1000;
  }
  EXPECT_THAT(review(slow).differences,
              testing::ElementsAre(HasSubstr("effects[1].changed_ns"),
                                   HasSubstr("effects[1].changed_ci_ns[0]"),
                                   HasSubstr("effects[1].changed_ci_ns[1]")));
  Json other_op = confirmed;
  other_op["summary"]["attribution"]["confirmations"][0]["effects"][0]["what"] =
      "rope in the engine";
  EXPECT_THAT(review(other_op).differences, Contains(HasSubstr("confirmations[0].effects")));
}

TEST(AttributionReader, TwoWindowsAreReadAsTheyWereMeasured) {
  const Json apart = with_confirmation(document_of(observed_apart(program())), true);
  const Reviewed reviewed = review(apart);
  EXPECT_THAT(reviewed.differences, IsEmpty());
  const Json& figures = reviewed.recomputed.summary["attribution"];
  EXPECT_EQ(figures["confirmations"][0]["effects"][1]["base_ns"],
            figures["closure"]["growth"]["ns"]);
  Json slow = apart;
  for (Json& sample : slow["samples"]) {
    if (sample["arm"] != "untraced" || sample["configuration"] != 0) continue;
    for (Json& value : sample["values"]) value = value.get<int64_t>() + 9'000;
  }
  EXPECT_THAT(review(slow).differences, Contains(HasSubstr("attribution.closure.unwatched_ns[0]")));
}

TEST(AttributionReader, AConfirmationInSpiteOfItsGateIsFound) {
  Json doubted = with_confirmation(good());
  doubted["gates"].back()["pass"] = false;
  doubted["gates"].back()["why"] = "grid: 7 in the engine, 8 in the probe";
  const Reviewed reviewed = review(doubted);
  EXPECT_THAT(reviewed.differences, Contains(HasSubstr("confirmations[0].effects")));
  EXPECT_THAT(reviewed.recomputed.text, HasSubstr("withheld: grid: 7 in the engine"));
  EXPECT_THAT(reviewed.recomputed.text, HasSubstr("attn: undetermined")) << "the diagnosis stands";
  EXPECT_FALSE(reviewed.trusted());
}

TEST(AttributionReader, ConfirmationsOfEarlierVersionsStayAsStored) {
  Json older = with_confirmation(good());
  older["summary"].erase("changed_observations");
  older["summary"]["attribution"]["confirmations"][0]["effects"][0]["changed_ns"] = 5;
  const Reviewed reviewed = review(older);
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_THAT(reviewed.recomputed.notes, Contains(HasSubstr("no launches of changed engines")));
}

TEST(AttributionReader, FilesOfEarlierVersionsHaveNoCosts) {
  Json older = good();
  older["summary"]["attribution"].erase("costs");
  const Reviewed reviewed = review(older);
  EXPECT_THAT(reviewed.differences, IsEmpty());
  EXPECT_THAT(reviewed.recomputed.notes, Contains(HasSubstr("earlier version")));
  EXPECT_EQ(reviewed.n_stored, 1u + 3 + 2) << "plan, anchors and ceilings";
}

TEST(AttributionReader, HostileDocumentsGetOneLine) {
  const auto refused = [&](const std::function<void(Json&)>& change) {
    return test::refusal(good(), change);
  };
  const auto first = [](Json& d, const std::string& arm) -> Json& {
    for (Json& sample : d["samples"]) {
      if (sample["arm"] == arm) return sample;
    }
    return d;
  };
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["values"] = Json::array(); }),
              HasSubstr("has no steps"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["values"][0] = 1e300; }),
              HasSubstr("expected a whole number"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["values"][0] = INT64_MAX; }),
              HasSubstr("expected a whole number"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["round"] = 700; }),
              HasSubstr("out of order"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["depth"] = 65; }),
              HasSubstr("none of the header's"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["half"] = 1; }),
              HasSubstr("expected 12 of two blocks each"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "untraced")["clock"] = "fast"; }),
              HasSubstr("this is no observation"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "traced")["exclusive_ns"][0] = 5; }),
              HasSubstr("add up to"));
  EXPECT_THAT(refused([&](Json& d) { first(d, "traced")["exclusive_ns"].erase(0); }),
              testing::AnyOf(HasSubstr("add up to"), HasSubstr("launches of its plan")));
  EXPECT_THAT(refused([&](Json& d) { first(d, "traced")["steps"] = 0; }), HasSubstr("from 1"));
  EXPECT_THAT(
      refused([](Json& d) { d["summary"]["observation"]["plans"][0][0]["layer"] = 2'000'000; }),
      HasSubstr("a launch of layer 2000000"));
  EXPECT_THAT(refused([](Json& d) {
                d["summary"]["observation"]["depths"] = {64, 64, 1641};
              }),
              HasSubstr("do not rise"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["observation"] = 5; }),
              HasSubstr("this is no observation"));
  EXPECT_THAT(refused([](Json& d) { d["summary"]["attribution"]["depths"].erase(1); }),
              HasSubstr("2 of the 3"));
  EXPECT_THAT(
      refused([](Json& d) { d["summary"]["attribution"]["diagnoses"][0]["verdict"] = "?"; }),
      HasSubstr("expected a verdict"));
  const auto refused_confirmed = [&](const std::function<void(Json&)>& change) {
    return test::refusal(with_confirmation(good()), change);
  };
  EXPECT_THAT(
      refused_confirmed([](Json& d) { d["summary"]["changed_observations"] = Json::array(); }),
      HasSubstr("0 for 1 confirmations"));
  EXPECT_THAT(refused_confirmed([](Json& d) {
                d["summary"]["changed_observations"][0]["depths"] = {64, 501, 1641};
              }),
              HasSubstr("expected the base's"));
  EXPECT_THAT(refused_confirmed(
                  [](Json& d) { d["summary"]["changed_observations"][0]["plans"][0].erase(0); }),
              HasSubstr("launches of its plan"));
  EXPECT_THAT(refused_confirmed([](Json& d) { d["gates"].push_back(d["gates"].back()); }),
              HasSubstr("2 verbatim_changed for 1"));
  EXPECT_THAT(refused([](Json& d) {
                Json kept = Json::array();
                for (const Json& s : d["samples"]) {
                  if (s["arm"] != "traced") kept.push_back(s);
                }
                d["samples"] = kept;
              }),
              HasSubstr("0 rounds of 'traced'"));
}

}  // namespace
}  // namespace fathom::report

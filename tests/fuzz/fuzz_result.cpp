// SPDX-License-Identifier: Apache-2.0
// Any bytes as a result document: `report` refuses them with one line, or recomputes them.
#include <stdexcept>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "fuzz_target.hpp"
#include "measure/observation_json.hpp"
#include "report/attribution_gates.hpp"
#include "report/recompute.hpp"
#include "tests/support/synthetic_program.hpp"

namespace {

using fathom::Json;

void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

Json document(Json summary, Json samples, const char* command = "bench") {
  return {
      {"schema", "fathom-result/1"},
      {"command", {"fathom", command}},
      {"machine", Json::object()},
      {"samples", std::move(samples)},
      {"summary", std::move(summary)},
      {"gates",
       {{{"id", "steady"}, {"pass", true}, {"value", nullptr}, {"limit", nullptr}, {"why", ""}}}}};
}

Json bench_seed(int rounds) {
  Json samples = Json::array();
  for (int round = 0; round < rounds; ++round) {
    samples.push_back({{"arm", "tg4"},
                       {"row", 0},
                       {"round", round},
                       {"ns", 1000 + round % 3},
                       {"clock_mhz", 3000},
                       {"flags", {"outlier"}},
                       {"logits_hash", "0f"}});
    samples.push_back({{"arm", "tg4 (A/A)"},
                       {"twin_of", 0},
                       {"configuration", 0},
                       {"round", round},
                       {"ns", 1001}});
    samples.push_back({{"arm", "ceiling"}, {"configuration", 0}, {"round", round}, {"gbps", 20}});
  }
  samples.push_back({{"arm", "canary"}, {"values", {50, 51}}});
  samples.push_back({{"arm", "logits"}, {"row", 0}, {"kl", 0.001}, {"same_top", true}});
  samples.push_back({{"arm", "gap"},
                     {"row", 0},
                     {"waited_ns", {1000, 1001}},
                     {"ahead_ns", {900, 900}},
                     {"submit_ns", {30}}});
  return document({{"seed", 1},
                   {"configurations", {{{"device", "x"}, {"cache_bytes", 100}, {"most_gops", 5}}}},
                   {"rows",
                    {{{"n_prompt", 0},
                      {"n_gen", 4},
                      {"n_seqs", 1},
                      {"test_bytes", 9000},
                      {"step_bytes", 400},
                      {"configuration", 0}}}}},
                  std::move(samples));
}

Json profile_seed() {
  Json samples = Json::array();
  for (int round = 0; round < 5; ++round) {
    samples.push_back({{"arm", "traced"},
                       {"depth", 8},
                       {"round", round},
                       {"ns", 100},
                       {"outside_ns", 1},
                       {"ops_ns", {{"attn", 99}}}});
    samples.push_back({{"arm", "untraced"}, {"depth", 8}, {"round", round}, {"ns", 98}});
    samples.push_back({{"arm", "ceiling"}, {"round", round}, {"gbps", 20}});
  }
  return document({{"profile",
                    {{"cache_bytes", 4},
                     {"depths",
                      {{{"depth", 8},
                        {"kv_fill", "real"},
                        {"ops", {{{"op", "attn"}, {"calls", 2}, {"bytes", 500}}}}}}}}}},
                  std::move(samples));
}

Json against_seed() {
  Json samples = Json::array();
  for (int round = 0; round < 6; ++round) {
    for (const char* side : {"ours", "twin", "baseline"}) {
      samples.push_back({{"arm", "tg4"},
                         {"key", "0 tg4"},
                         {"side", side},
                         {"tokens", 4},
                         {"round", round},
                         {"ns", 1000 + round}});
    }
  }
  return document({{"against", {{"rows", Json::array()}}}}, std::move(samples));
}

fathom::measure::Observation observed(int64_t attn_ns, int rounds) {
  fathom::test::SyntheticProgram program;
  program.ops = {{"qkv", 0, {50'000, 50'000}, 300}, {"attn", 0, {20'000, attn_ns}, 300}};
  program.noise = 0.01;
  fathom::measure::OpTrace trace(1'000, program.clock());
  fathom::measure::ObserveOptions options;
  options.source = &trace;
  options.block_ns = 150'000;
  options.min_rounds = options.max_rounds = rounds;
  options.clock = program.clock();
  return fathom::measure::observe(program, options);
}

// With a confirmation, evidence without counters and everything else that a document may hold.
Json attribution_seed(int rounds) {
  using namespace fathom;
  const std::vector<int64_t> depths{64, 1641};
  const measure::Observation base = observed(60'000, rounds), changed = observed(30'000, rounds);
  report::AttributionReport r;
  r.model = r.backend = r.device = r.kv_type = "x";
  r.depths = depths;
  r.kv_fill = {"real", "real"};
  r.kv_bytes = {2000 * 65, 2000 * 1642};
  r.kv_token_bytes = 2000;
  r.block_steps = {1, 1};
  r.rounds = base.n_rounds();
  r.stopped = base.stopped;
  r.attribution = measure::attribute(base, {65, 1642});
  r.peaks = {.memory_gbps = 25, .cache_gbps = 60.0, .gflops = 200.0, .cache_bytes = 100'000};
  r.costs_lo = {{"qkv", 500'000, 1'000'000}, {"attn", 2000 * 65, 400'000}};
  r.costs_hi = {{"qkv", 500'000, 1'000'000}, {"attn", 2000 * 1642, 9'000'000}};
  r.decompositions = {{.op = "attn",
                       .bytes_lo = 2000 * 65,
                       .bytes_hi = 2000 * 1642,
                       .flops_lo = 400'000,
                       .flops_hi = 9'000'000,
                       .lo = {20'000, 5'200, 2'000.0},
                       .hi = {60'000, 131'360, 45'000.0},
                       .residence = measure::Residence::memory,
                       .arithmetic = Arithmetic::f32}};
  measure::Evidence none;
  none.why_no_counters = "none";
  r.evidence = {{"attn", 2000 * 1642, none}};
  r.overlaps = {{"qkv", "attn", 1'000, 91'000}};
  r.eager = measure::EagerSteps{{90'000, 140'000}};
  r.diagnoses = {{"attn", measure::Bottleneck::undetermined, {"rates"}, {"counters"}}};
  r.confirmations = {{.knob = "threads 2 -> 1",
                      .basis = "bytes",
                      .effects = {{"attn in the engine", 4e4, 1e4, {{1e4, 2e4}}, {9e3, 11e3}}},
                      .probed_op = "attn",
                      .probed = {{"hot", 20, 10, {19, 21}, {9, 11}}},
                      .engine_ratio = 0.5,
                      .gaps = {"they agree"},
                      .problem = {}}};
  Json samples = measure::observation_samples(base, depths);
  for (Json& sample : measure::observation_samples(changed, depths, 1)) samples.push_back(sample);
  samples.push_back({{"arm", "ceiling"}, {"configuration", 0}, {"round", 0}, {"gbps", 25}});
  samples.push_back({{"arm", "eager"}, {"depth", 64}, {"values", {90'000}}});
  return document({{"observation", measure::observation_header(base, depths)},
                   {"changed_observations", {measure::observation_header(changed, depths)}},
                   {"attribution", report::attribution_json(r)},
                   {"watermark", "busy"}},
                  std::move(samples), "attribute");
}

Json a_difference() {
  return {{"n_values", 100},
          {"n_different", 3},
          {"max_abs", 1e-6},
          {"max_ulp", 7},
          {"argmax_flips", 0}};
}

Json probe_variant(const char* name, int staging) {
  const Json figures{{"us", 5},
                     {"ci", {4, 6}},
                     {"kernels",
                      {{{"kernel", "a"}, {"us", 4}, {"ci", {3, 5}}, {"values_us", {3, 4, 5}}},
                       {{"kernel", "b"}, {"us", 2}, {"ci", {1, 3}}, {"values_us", {1, 2, 3}}}}}};
  return {{"name", name},
          {"knobs", {{"staging", std::to_string(staging)}}},
          {"class", "B1"},
          {"why", nullptr},
          {"difference", a_difference()},
          {"kernels",
           {{{"kernel", "void attn<128>(P)"},
             {"grid", {32, 28, 1}},
             {"block", {32, 1, 1}},
             {"registers", 64},
             {"occupancy", 0.5},
             {"waves", 0.2}}}},
          {"hot", figures},
          {"cold", figures}};
}

Json probe_seed(bool with_map) {
  Json samples = Json::array();
  for (int round = 0; round < 3; ++round) {
    const auto add = [&](const std::string& arm, const char* unit, double value) {
      samples.push_back({{"arm", arm},
                         {"depth", 8},
                         {"batch", 1},
                         {"type", "Q4_K"},
                         {"cache", "f16"},
                         {"round", round},
                         {unit, value}});
    };
    for (const char* memory : {"hot", "cold"}) {
      for (const char* name : {"seed", "seed again", "seed:staging=8"}) {
        add(fmt::format("{} {}", name, memory), "launch_ns", 5000 + round);
      }
    }
    add("ceiling", "gbps", 20);
    add("cached_ceiling", "gbps", 60);
  }
  Json size{{"batch", 1},
            {"depth", 8},
            {"type", "Q4_K"},
            {"cache", "f16"},
            {"variants", {probe_variant("seed", 4), probe_variant("seed:staging=8", 8)}},
            {"declared",
             {{"weight_bytes", 0},
              {"kv_bytes", 3000},
              {"act_read_bytes", 10},
              {"act_written_bytes", 10}}},
            {"rotation",
             {{"n_sets", 10},
              {"set_bytes", 3000},
              {"distinct_bytes", 30000},
              {"cache_bytes", 9000},
              {"cold", true},
              {"hot", true}}}};
  Json summary{{"op", "attn"},
               {"shape", "x"},
               {"device", "NVIDIA H200"},
               {"seed", 1},
               {"sizes", {std::move(size)}}};
  if (with_map) {
    summary["n_classed"] = 1;
    summary["freedom_map"] = {{{"knob", "staging"},
                               {"from", "4"},
                               {"to", "8"},
                               {"class", "B1"},
                               {"n_pairs", 1},
                               {"least_depth", 8},
                               {"difference", a_difference()},
                               {"times",
                                {{{"batch", 1},
                                  {"depth", 8},
                                  {"memory", "hot"},
                                  {"ratio", {{"value", 1}, {"ci", {0.9, 1.1}}}}}}}}};
  }
  return document(std::move(summary), std::move(samples), "probe");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const fathom::report::Reviewed reviewed =
        fathom::report::review(fathom::parse_json(text, "input"));
    fathom::dump_json(reviewed.recomputed.summary);
    if (reviewed.recomputed.summary.contains("attribution")) {
      fathom::report::page_of(fathom::parse_json(text, "input"));
    }
  } catch (const fathom::Error& error) {
    expect(error.code() == fathom::ErrorCode::bad_file, "refused with another code than bad_file");
    expect(std::string_view(error.what()).find('\n') == std::string_view::npos,
           "a message has several lines");
  }
  return 0;
}

std::vector<std::string> fathom::fuzz::seeds() {
  const Json scores = {{{"arm", "nll"}, {"values", {1, 2}}},
                       {{"arm", "kl"}, {"values", {0.1, 0.2}}}};
  const Json rates = {{{"arm", "ceiling"}, {"values", {20, 21}}},
                      {{"arm", "device_ceiling"}, {"values", {4800, 4900}}}};
  return {dump_json(bench_seed(2)),
          dump_json(bench_seed(12)),
          dump_json(profile_seed()),
          dump_json(against_seed()),
          dump_json(attribution_seed(2)),
          dump_json(attribution_seed(6)),
          dump_json(probe_seed(false)),
          dump_json(probe_seed(true)),
          dump_json(document({{"nll", {{"mean", 1.5}}}, {"perplexity", 2}}, scores, "perplexity")),
          dump_json(document({{"read_gbps", {{"median", 20.5}}}}, rates, "doctor"))};
}

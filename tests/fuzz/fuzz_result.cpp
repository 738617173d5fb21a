// SPDX-License-Identifier: Apache-2.0
// Any bytes as a result document: `report` refuses them with one line, or recomputes them.
#include <stdexcept>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "fuzz_target.hpp"
#include "report/recompute.hpp"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const fathom::report::Reviewed reviewed =
        fathom::report::review(fathom::parse_json(text, "input"));
    fathom::dump_json(reviewed.recomputed.summary);
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
          dump_json(document({{"nll", {{"mean", 1.5}}}, {"perplexity", 2}}, scores, "perplexity")),
          dump_json(document({{"read_gbps", {{"median", 20.5}}}}, rates, "doctor"))};
}

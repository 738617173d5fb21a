// SPDX-License-Identifier: Apache-2.0
// Runs of counters and profiles of stalls as JSON, both ways.
#include <algorithm>

#include "base/error.hpp"
#include "measure/evidence.hpp"

namespace fathom::measure {
namespace {

constexpr size_t kMostPlaces = 12;  // of a kernel
constexpr size_t kMostReasons = 4;

// A null is the empty text, and the other way round.
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
std::string text_of(const Json& json) { return json.is_null() ? "" : json.get<std::string>(); }

Json run_json(const CounterRun& run) {
  Json counters = Json::array(), ops = Json::array();
  for (const Counter& c : run.counters) {
    counters.push_back({{"name", c.name},
                        {"unit", c.unit},
                        {"metric", or_null(c.metric)},
                        {"scale", c.scale},
                        {"note", or_null(c.note)}});
  }
  for (const OpCounters& op : run.ops) {
    Json values = Json::array();
    for (const auto& value : op.values) values.push_back(value ? Json(*value) : Json(nullptr));
    ops.push_back({{"op", op.op}, {"layer", op.layer}, {"values", values}});
  }
  return {{"counters", counters},
          {"ops", ops},
          {"passes", run.n_passes},
          {"problem", or_null(run.problem)}};
}

CounterRun run_of(const Json& json) {
  CounterRun run;
  for (const Json& c : json.at("counters")) {
    run.counters.push_back({.name = c.at("name"),
                            .unit = c.at("unit"),
                            .metric = text_of(c.at("metric")),
                            .scale = c.at("scale"),
                            .note = text_of(c.at("note"))});
  }
  for (const Json& op : json.at("ops")) {
    OpCounters& counters = run.ops.emplace_back();
    counters.op = op.at("op");
    counters.layer = op.at("layer");
    for (const Json& value : op.at("values")) {
      counters.values.push_back(value.is_null() ? std::nullopt
                                                : std::optional<double>(value.get<double>()));
    }
    if (counters.values.size() != run.counters.size()) {
      fail(ErrorCode::bad_file, "op {} has {} values of {} counters", counters.op,
           counters.values.size(), run.counters.size());
    }
  }
  run.n_passes = json.at("passes");
  run.problem = text_of(json.at("problem"));
  return run;
}

Json launch_json(const OpLaunch& of) {
  const KernelLaunch& l = of.launch;
  return {{"op", of.op},
          {"kernel", l.kernel},
          {"grid", l.grid},
          {"block", l.block},
          {"shared_bytes", l.shared_bytes},
          {"local_bytes", l.local_bytes},
          {"registers", l.registers},
          {"blocks_per_sm", l.blocks_per_sm},
          {"occupancy", l.occupancy},
          {"waves", l.waves}};
}

OpLaunch launch_of(const Json& json) {
  OpLaunch out{json.at("op"), {}};
  KernelLaunch& l = out.launch;
  l.kernel = json.at("kernel");
  l.grid = json.at("grid");
  l.block = json.at("block");
  l.shared_bytes = json.at("shared_bytes");
  l.local_bytes = json.at("local_bytes");
  l.registers = json.at("registers");
  l.blocks_per_sm = json.at("blocks_per_sm");
  l.occupancy = json.at("occupancy");
  l.waves = json.at("waves");
  return out;
}

Json place_json(const CodePlace& place) {
  return {{"offset", place.offset},
          {"instruction", place.instruction},
          {"file", or_null(place.file)},
          {"line", place.line}};
}

CodePlace place_of(const Json& json) {
  return {.offset = json.at("offset"),
          .instruction = json.at("instruction"),
          .file = text_of(json.at("file")),
          .line = json.at("line")};
}

Json reasons_json(const std::vector<StallCount>& reasons) {
  Json out = Json::array();
  for (const StallCount& count : reasons) out.push_back({count.reason, count.samples});
  return out;
}

std::vector<StallCount> reasons_of(const Json& json) {
  std::vector<StallCount> out;
  for (const Json& count : json) out.push_back({count.at(0), count.at(1)});
  return out;
}

int64_t samples_of(const StalledPlace& at, const std::string& reason) {
  for (const StallCount& count : at.reasons) {
    if (count.reason == reason) return count.samples;
  }
  return 0;
}

// The places with the most samples, and those with the most of the largest reasons.
std::vector<size_t> kept_places(const KernelStalls& kernel) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < std::min(kMostPlaces, kernel.places.size()); ++i) kept.push_back(i);
  for (size_t r = 0; r < std::min(kMostReasons, kernel.reasons.size()); ++r) {
    const std::string& reason = kernel.reasons[r].reason;
    const auto most = std::max_element(kernel.places.begin(), kernel.places.end(),
                                       [&](const StalledPlace& a, const StalledPlace& b) {
                                         return samples_of(a, reason) < samples_of(b, reason);
                                       });
    if (most == kernel.places.end()) continue;
    const size_t at = static_cast<size_t>(most - kernel.places.begin());
    if (std::find(kept.begin(), kept.end(), at) == kept.end()) kept.push_back(at);
  }
  return kept;
}

Json kernel_json(const KernelStalls& kernel) {
  Json places = Json::array();
  for (const size_t i : kept_places(kernel)) {
    const StalledPlace& at = kernel.places[i];
    Json producers = Json::array();
    for (const CodePlace& producer : at.producers) producers.push_back(place_json(producer));
    places.push_back({{"place", place_json(at.place)},
                      {"samples", at.samples},
                      {"reasons", reasons_json(at.reasons)},
                      {"producers", producers},
                      {"problem", or_null(at.problem)}});
  }
  return {{"kernel", kernel.kernel},
          {"samples", kernel.samples},
          {"reasons", reasons_json(kernel.reasons)},
          {"n_places", kernel.places.size()},
          {"places", places}};
}

KernelStalls kernel_of(const Json& json) {
  KernelStalls out{.kernel = json.at("kernel"),
                   .samples = json.at("samples"),
                   .reasons = reasons_of(json.at("reasons")),
                   .places = {}};
  for (const Json& at : json.at("places")) {
    StalledPlace& place = out.places.emplace_back();
    place.place = place_of(at.at("place"));
    place.samples = at.at("samples");
    place.reasons = reasons_of(at.at("reasons"));
    for (const Json& producer : at.at("producers")) place.producers.push_back(place_of(producer));
    place.problem = text_of(at.at("problem"));
  }
  return out;
}

Json profile_json(const StallProfile& profile) {
  Json kernels = Json::array();
  for (const KernelStalls& kernel : profile.kernels) kernels.push_back(kernel_json(kernel));
  return {{"kernels", kernels},
          {"samples", profile.n_samples},
          {"dropped", profile.n_dropped},
          {"foreign", profile.n_foreign},
          {"buffer_full", profile.buffer_full},
          {"problem", or_null(profile.problem)}};
}

StallProfile profile_of(const Json& json) {
  StallProfile out;
  for (const Json& kernel : json.at("kernels")) out.kernels.push_back(kernel_of(kernel));
  out.n_samples = json.at("samples");
  out.n_dropped = json.at("dropped");
  out.n_foreign = json.at("foreign");
  out.buffer_full = json.at("buffer_full");
  out.problem = text_of(json.at("problem"));
  return out;
}

template <class Read>
auto reading(const Read& read) {
  try {
    return read();
  } catch (const Json::exception& e) {
    fail(ErrorCode::bad_file, "no evidence of counters and stalls: {}", e.what());
  }
}

}  // namespace

Json counted_json(const Counted& counted) {
  Json launches = Json::array();
  for (const OpLaunch& launch : counted.launches) launches.push_back(launch_json(launch));
  return {{"runs", {run_json(counted.runs[0]), run_json(counted.runs[1])}},
          {"launches", launches},
          {"problem", or_null(counted.problem)}};
}

Json sampled_json(const Sampled& sampled) {
  Json ops = Json::object();
  for (const auto& [op, profile] : sampled.ops) ops[op] = profile_json(profile);
  return {{"ops", ops}, {"problem", or_null(sampled.problem)}};
}

Counted counted_from_json(const Json& json) {
  return reading([&] {
    Counted out;
    for (size_t i : {size_t{0}, size_t{1}}) out.runs[i] = run_of(json.at("runs").at(i));
    for (const Json& launch : json.at("launches")) out.launches.push_back(launch_of(launch));
    out.problem = text_of(json.at("problem"));
    return out;
  });
}

Sampled sampled_from_json(const Json& json) {
  return reading([&] {
    Sampled out;
    for (const auto& [op, profile] : json.at("ops").items()) out.ops[op] = profile_of(profile);
    out.problem = text_of(json.at("problem"));
    return out;
  });
}

}  // namespace fathom::measure

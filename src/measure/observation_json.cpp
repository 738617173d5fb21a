// SPDX-License-Identifier: Apache-2.0
// Observations and traced steps as JSON, and back.
#include "measure/observation_json.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "measure/rounds.hpp"

namespace fathom::measure {
namespace {

// So small that no sum of a window's times overflows.
constexpr int64_t kMostNs = 10'000'000'000'000;
constexpr int64_t kMostRounds = 2000, kMostLaunches = 65'536, kMostLayers = 1024;

int64_t whole(const Json& json, int64_t least, int64_t most) {
  if (json.is_number_integer() && json >= least && json <= most) return json;
  fail(ErrorCode::bad_file, "expected a whole number from {} to {}, found {}", least, most,
       dump_json(json).substr(0, 40));
}

Json launch_json(const Launch& launch) {
  return {{"layer", launch.key.layer},
          {"op", launch.key.op},
          {"ordinal", launch.key.ordinal},
          {"kernel", launch.kernel},
          {"grid", launch.grid},
          {"block", launch.block},
          {"shared_bytes", launch.shared_bytes},
          {"registers", launch.registers}};
}

int small_whole(const Json& json, int least = 0) {
  return static_cast<int>(whole(json, least, INT32_MAX));
}

std::array<int, 3> three(const Json& json) {
  return {small_whole(json.at(0)), small_whole(json.at(1)), small_whole(json.at(2))};
}

Launch launch_from_json(const Json& json) {
  const int layer = small_whole(json.at("layer"), -1);
  if (layer >= kMostLayers) fail(ErrorCode::bad_file, "a launch of layer {}", layer);
  return {.key = {layer, json.at("op"), small_whole(json.at("ordinal"))},
          .kernel = json.at("kernel"),
          .grid = three(json.at("grid")),
          .block = three(json.at("block")),
          .shared_bytes = small_whole(json.at("shared_bytes")),
          .registers = small_whole(json.at("registers"))};
}

Json block_json(const UntracedBlock& block) {
  return {{"values", block.steps_ns}, {"clock", block.clock}};
}

Json block_json(const TracedBlock& block) {
  return {{"values", block.steps_ns}, {"clock", block.clock},
          {"steps", block.steps},     {"exclusive_ns", block.exclusive_ns},
          {"gap_ns", block.gap_ns},   {"span_ns", block.span_ns},
          {"busy_ns", block.busy_ns}};
}

std::vector<int64_t> times(const Json& json, int64_t least) {
  std::vector<int64_t> out;
  for (const Json& value : json) out.push_back(whole(value, least, kMostNs));
  return out;
}

// Finite, as JSON has no other numbers.
double clock_of(const Json& json) {
  const double clock = json.at("clock");
  if (clock < 0) fail(ErrorCode::bad_file, "expected a clock of at least 0, found {}", clock);
  return clock;
}

void read_block(const Json& json, UntracedBlock& block) {
  block = {.steps_ns = times(json.at("values"), 1), .clock = clock_of(json)};
}

void read_block(const Json& json, TracedBlock& block) {
  block = {.steps_ns = times(json.at("values"), 1),
           .clock = clock_of(json),
           .steps = whole(json.at("steps"), 1, kMostNs),
           .exclusive_ns = times(json.at("exclusive_ns"), 0),
           .gap_ns = times(json.at("gap_ns"), 0),
           .span_ns = whole(json.at("span_ns"), 0, kMostNs),
           .busy_ns = whole(json.at("busy_ns"), 0, kMostNs)};
  const int64_t sum =
      std::accumulate(block.exclusive_ns.begin(), block.exclusive_ns.end(), int64_t{0}) +
      std::accumulate(block.gap_ns.begin(), block.gap_ns.end(), int64_t{0});
  if (sum != block.span_ns) {
    fail(ErrorCode::bad_file, "a window's launches and the time between them add up to {} ns of {}",
         sum, block.span_ns);
  }
}

template <class Block>
void add_samples(Json& out, const std::vector<BlockPair<Block>>& pairs, const char* arm,
                 int64_t depth, int configuration) {
  std::vector<double> steps;
  for (const BlockPair<Block>& pair : pairs) {
    for (const Block& block : pair) steps.push_back(block.step_ns());
  }
  const std::vector<std::vector<std::string>> flags = outlier_flags(steps);
  for (size_t round = 0; round < pairs.size(); ++round) {
    for (int half : {0, 1}) {
      Json sample{{"arm", arm},     {"configuration", configuration},
                  {"depth", depth}, {"round", round},
                  {"half", half},   {"flags", flags[2 * round + static_cast<size_t>(half)]}};
      sample.update(block_json(pairs[round][static_cast<size_t>(half)]));
      out.push_back(std::move(sample));
    }
  }
}

// Samples come by round and half.
template <class Block>
void read_sample(const Json& json, std::vector<BlockPair<Block>>& pairs) {
  const auto round = static_cast<size_t>(whole(json.at("round"), 0, kMostRounds - 1));
  const auto half = static_cast<size_t>(whole(json.at("half"), 0, 1));
  if (round > pairs.size()) fail(ErrorCode::bad_file, "a sample is out of order");
  if (round == pairs.size()) pairs.emplace_back();
  Block& block = pairs[round][half];
  read_block(json, block);
  if (block.steps_ns.empty()) fail(ErrorCode::bad_file, "a sample's block has no steps");
}

// Blocks must fit the plan.
void check(const Observation& observation) {
  for (const DepthSamples& depth : observation.depths) {
    for (const BlockPair<TracedBlock>& pair : depth.traced) {
      for (const TracedBlock& block : pair) {
        if (block.exclusive_ns.size() == depth.plan.size() &&
            block.gap_ns.size() == depth.plan.size()) {
          continue;
        }
        fail(ErrorCode::bad_file, "an observation's block has not the launches of its plan");
      }
    }
  }
}

template <class Block>
void require_whole_rounds(const std::vector<BlockPair<Block>>& pairs, size_t n, const char* arm) {
  const bool whole = std::all_of(pairs.begin(), pairs.end(), [](const BlockPair<Block>& pair) {
    return !pair[0].steps_ns.empty() && !pair[1].steps_ns.empty();
  });
  if (pairs.size() == n && n > 0 && whole) return;
  fail(ErrorCode::bad_file, "samples: {} rounds of '{}', expected {} of two blocks each",
       pairs.size(), arm, n);
}

}  // namespace

Json observation_samples(const Observation& observation, const std::vector<int64_t>& depths,
                         int configuration) {
  Json out = Json::array();
  for (size_t i = 0; i < observation.depths.size(); ++i) {
    add_samples(out, observation.depths[i].untraced, "untraced", depths[i], configuration);
    add_samples(out, observation.depths[i].traced, "traced", depths[i], configuration);
  }
  return out;
}

Json observation_header(const Observation& observation, const std::vector<int64_t>& depths) {
  Json plans = Json::array();
  for (const DepthSamples& depth : observation.depths) {
    Json& plan = plans.emplace_back(Json::array());
    for (const Launch& launch : depth.plan) plan.push_back(launch_json(launch));
  }
  return {{"seed", observation.seed},
          {"stopped", observation.stopped},
          {"problem", observation.problem},
          {"refused_windows", observation.refused_windows},
          {"order", observation.order},
          {"order_watched", observation.order_watched},
          {"depths", depths},
          {"plans", std::move(plans)}};
}

void require_attributable(const Observation& o) {
  if (o.depths.size() < 2) {
    fail(ErrorCode::bad_file, "an observation of {} depths, expected two at least",
         o.depths.size());
  }
  const size_t n = o.lo().untraced.size();
  for (const DepthSamples& depth : o.depths) require_whole_rounds(depth.untraced, n, "untraced");
  const size_t n_traced = o.lo().traced.size();
  for (const DepthSamples* depth : {&o.lo(), &o.hi()}) {
    require_whole_rounds(depth->traced, n_traced, "traced");
    if (depth->plan.empty()) fail(ErrorCode::bad_file, "a plan without launches");
  }
}

Observation observation_from_json(const Json& header, const Json& samples, int configuration) {
  try {
    Observation observation;
    observation.seed = header.at("seed");
    observation.stopped = header.at("stopped");
    observation.problem = header.at("problem");
    observation.order = header.at("order");
    // Files of earlier versions have neither.
    if (header.contains("refused_windows")) {
      observation.refused_windows = small_whole(header.at("refused_windows"));
    }
    if (header.contains("order_watched")) observation.order_watched = header.at("order_watched");
    std::vector<int64_t> depths;
    for (const Json& depth : header.at("depths")) {
      depths.push_back(whole(depth, 0, INT32_MAX));
      if (depths.size() > 1 && depths.end()[-2] >= depths.back()) {
        fail(ErrorCode::bad_file, "an observation's depths do not rise");
      }
    }
    for (size_t i = 0; i < depths.size(); ++i) {
      DepthSamples& depth = observation.depths.emplace_back();
      for (const Json& launch : header.at("plans").at(i)) {
        depth.plan.push_back(launch_from_json(launch));
      }
      if (depth.plan.size() > kMostLaunches) fail(ErrorCode::bad_file, "too many launches");
    }
    for (const Json& sample : samples) {
      const std::string arm = sample.at("arm");
      if (arm != "untraced" && arm != "traced") continue;
      if (sample.value("configuration", 0) != configuration) continue;
      const auto at = std::find(depths.begin(), depths.end(), sample.at("depth").get<int64_t>());
      if (at == depths.end()) fail(ErrorCode::bad_file, "a sample's depth is none of the header's");
      DepthSamples& depth = observation.depths[static_cast<size_t>(at - depths.begin())];
      if (arm == "untraced") {
        read_sample(sample, depth.untraced);
      } else {
        read_sample(sample, depth.traced);
      }
    }
    check(observation);
    return observation;
  } catch (const Json::exception& e) {
    fail(ErrorCode::bad_file, "this is no observation: {}", e.what());
  }
}

Json trace_step_json(const TraceStep& step) {
  Json records = Json::array();
  for (const TraceRecord& record : step.records) {
    Json json = launch_json({{record.layer, record.op, record.ordinal},
                             record.kernel,
                             record.grid,
                             record.block,
                             record.shared_bytes,
                             record.registers});
    json["start_ns"] = record.start_ns;
    json["end_ns"] = record.end_ns;
    records.push_back(std::move(json));
  }
  return records;
}

TraceStep trace_step_from_json(const Json& json) {
  try {
    TraceStep step;
    for (const Json& from : json) {
      const Launch launch = launch_from_json(from);
      step.records.push_back({launch.key.op, launch.key.layer, launch.key.ordinal, launch.kernel,
                              from.at("start_ns"), from.at("end_ns"), launch.grid, launch.block,
                              launch.shared_bytes, launch.registers});
    }
    return step;
  } catch (const Json::exception& e) {
    fail(ErrorCode::bad_file, "these are no trace records: {}", e.what());
  }
}

}  // namespace fathom::measure

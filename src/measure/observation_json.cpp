// SPDX-License-Identifier: Apache-2.0
// Observations and traced steps as JSON, and back.
#include "measure/observation_json.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

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

Launch launch_from_json(const Json& json) {
  return {.key = {json.at("layer"), json.at("op"), json.at("ordinal")},
          .kernel = json.at("kernel"),
          .grid = json.at("grid"),
          .block = json.at("block"),
          .shared_bytes = json.at("shared_bytes"),
          .registers = json.at("registers")};
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

void read_block(const Json& json, UntracedBlock& block) {
  block = {.steps_ns = json.at("values"), .clock = json.at("clock")};
}

void read_block(const Json& json, TracedBlock& block) {
  block = {.steps_ns = json.at("values"),
           .clock = json.at("clock"),
           .steps = json.at("steps"),
           .exclusive_ns = json.at("exclusive_ns"),
           .gap_ns = json.at("gap_ns"),
           .span_ns = json.at("span_ns"),
           .busy_ns = json.at("busy_ns")};
  if (block.steps < 1) fail(ErrorCode::bad_file, "a watched block has no steps");
}

template <class Block>
void add_samples(Json& out, const std::vector<BlockPair<Block>>& pairs, const char* arm,
                 int64_t depth, int configuration) {
  for (size_t round = 0; round < pairs.size(); ++round) {
    for (int half : {0, 1}) {
      Json sample{{"arm", arm},
                  {"configuration", configuration},
                  {"depth", depth},
                  {"round", round},
                  {"half", half}};
      sample.update(block_json(pairs[round][static_cast<size_t>(half)]));
      out.push_back(std::move(sample));
    }
  }
}

// Samples come by round and half.
template <class Block>
void read_sample(const Json& json, std::vector<BlockPair<Block>>& pairs) {
  const size_t round = json.at("round"), half = json.at("half");
  if (round > pairs.size() || half > 1) fail(ErrorCode::bad_file, "a sample is out of order");
  if (round == pairs.size()) pairs.emplace_back();
  Block& block = pairs[round][half];
  read_block(json, block);
  if (block.steps_ns.empty()) fail(ErrorCode::bad_file, "a sample's block has no steps");
}

// Blocks must fit the plan and have a round each.
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
          {"order", observation.order},
          {"depths", depths},
          {"plans", std::move(plans)}};
}

Observation observation_from_json(const Json& header, const Json& samples) {
  try {
    Observation observation;
    observation.seed = header.at("seed");
    observation.stopped = header.at("stopped");
    observation.problem = header.at("problem");
    observation.order = header.at("order");
    const std::vector<int64_t> depths = header.at("depths");
    for (size_t i = 0; i < depths.size(); ++i) {
      DepthSamples& depth = observation.depths.emplace_back();
      for (const Json& launch : header.at("plans").at(i)) {
        depth.plan.push_back(launch_from_json(launch));
      }
    }
    for (const Json& sample : samples) {
      const auto at = std::find(depths.begin(), depths.end(), sample.at("depth").get<int64_t>());
      if (at == depths.end()) fail(ErrorCode::bad_file, "a sample's depth is none of the header's");
      DepthSamples& depth = observation.depths[static_cast<size_t>(at - depths.begin())];
      if (sample.at("arm") == "untraced") read_sample(sample, depth.untraced);
      if (sample.at("arm") == "traced") read_sample(sample, depth.traced);
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

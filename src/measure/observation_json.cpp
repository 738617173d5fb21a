// SPDX-License-Identifier: Apache-2.0
// Observations and traced steps as JSON, and back.
#include "base/error.hpp"
#include "measure/observation.hpp"

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
  return {{"ns", block.ns}, {"steps", block.steps}, {"clock", block.clock}};
}

Json block_json(const TracedBlock& block) {
  return {{"ns", block.ns},          {"steps", block.steps},
          {"clock", block.clock},    {"exclusive_ns", block.exclusive_ns},
          {"gap_ns", block.gap_ns},  {"span_ns", block.span_ns},
          {"busy_ns", block.busy_ns}};
}

void read_block(const Json& json, UntracedBlock& block) {
  block = {.ns = json.at("ns"), .steps = json.at("steps"), .clock = json.at("clock")};
}

void read_block(const Json& json, TracedBlock& block) {
  block = {.ns = json.at("ns"),
           .steps = json.at("steps"),
           .clock = json.at("clock"),
           .exclusive_ns = json.at("exclusive_ns"),
           .gap_ns = json.at("gap_ns"),
           .span_ns = json.at("span_ns"),
           .busy_ns = json.at("busy_ns")};
}

template <class Block>
Json pairs_json(const std::vector<BlockPair<Block>>& pairs) {
  Json out = Json::array();
  for (const BlockPair<Block>& pair : pairs) {
    out.push_back(Json::array({block_json(pair[0]), block_json(pair[1])}));
  }
  return out;
}

template <class Block>
void read_pairs(const Json& json, std::vector<BlockPair<Block>>& pairs) {
  for (const Json& pair : json) {
    BlockPair<Block>& blocks = pairs.emplace_back();
    for (size_t half : {size_t{0}, size_t{1}}) {
      read_block(pair.at(half), blocks[half]);
      if (blocks[half].steps < 1) fail(ErrorCode::bad_file, "an observation's block has no steps");
    }
  }
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

Json observation_json(const Observation& observation) {
  Json depths = Json::array();
  for (const DepthSamples& depth : observation.depths) {
    Json plan = Json::array();
    for (const Launch& launch : depth.plan) plan.push_back(launch_json(launch));
    depths.push_back({{"untraced", pairs_json(depth.untraced)},
                      {"traced", pairs_json(depth.traced)},
                      {"plan", std::move(plan)}});
  }
  return {{"seed", observation.seed},
          {"stopped", observation.stopped},
          {"problem", observation.problem},
          {"order", observation.order},
          {"depths", std::move(depths)}};
}

Observation observation_from_json(const Json& json) {
  try {
    Observation observation;
    observation.seed = json.at("seed");
    observation.stopped = json.at("stopped");
    observation.problem = json.at("problem");
    observation.order = json.at("order");
    for (const Json& from : json.at("depths")) {
      DepthSamples& depth = observation.depths.emplace_back();
      read_pairs(from.at("untraced"), depth.untraced);
      read_pairs(from.at("traced"), depth.traced);
      for (const Json& launch : from.at("plan")) depth.plan.push_back(launch_from_json(launch));
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

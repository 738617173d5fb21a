// SPDX-License-Identifier: Apache-2.0
// Recorded streams of kernels as JSON: tests/fixtures/traces, written by fathom_trace_cuda_test on
// a GPU (scripts/gpu/trace.sh) and judged again where there is none.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "base/json.hpp"
#include "device/graph_trace.hpp"

namespace fathom::test {

inline Json to_json(const RawTrace& raw) {
  Json nodes = Json::array(), records = Json::array();
  for (const auto& [executable, names] : raw.executables) {
    for (const auto& [node, name] : names) {
      nodes.push_back({executable, node, name.op, name.layer, name.ordinal});
    }
  }
  for (const KernelRecord& r : raw.records) {
    records.push_back({r.launch, r.node, r.executable, r.start_ns, r.end_ns, r.kernel, r.grid,
                       r.block, r.shared_bytes, r.registers});
  }
  Json out;
  out["n_steps"] = raw.n_steps;
  out["n_dropped"] = raw.n_dropped;
  out["begin_ns"] = raw.begin_ns;
  out["end_ns"] = raw.end_ns;
  out["nodes"] = nodes;
  out["records"] = records;
  return out;
}

inline RawTrace raw_trace_from(const Json& json) {
  RawTrace raw;
  raw.n_steps = json.at("n_steps");
  raw.n_dropped = json.at("n_dropped");
  raw.begin_ns = json.at("begin_ns");
  raw.end_ns = json.at("end_ns");
  for (const Json& node : json.at("nodes")) {
    raw.executables[node[0].get<uint32_t>()][node[1].get<uint32_t>()] = {node[2], node[3], node[4]};
  }
  for (const Json& r : json.at("records")) {
    raw.records.push_back({.launch = r[0],
                           .node = r[1],
                           .executable = r[2],
                           .start_ns = r[3],
                           .end_ns = r[4],
                           .kernel = r[5],
                           .grid = r[6],
                           .block = r[7],
                           .shared_bytes = r[8],
                           .registers = r[9]});
  }
  return raw;
}

// REQUIRES: a file of tests/fixtures/traces.
inline RawTrace read_raw_trace(const std::string& name) {
  const std::string path = std::string(FATHOM_SOURCE_DIR) + "/tests/fixtures/traces/" + name;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return raw_trace_from(parse_json(text, path));
}

}  // namespace fathom::test

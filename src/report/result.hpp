// SPDX-License-Identifier: Apache-2.0
// A result document, schema fathom-result/1 (docs/result_schema.md): what was run, on which
// machine, the raw samples, the summary computed from them, and the gates that say whether the
// figures can be trusted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "measure/comparison.hpp"
#include "measure/machine.hpp"
#include "measure/machine_state.hpp"
#include "measure/rounds.hpp"

namespace fathom::report {

inline constexpr const char* kResultSchema = "fathom-result/1";

// The ids that scripts may rely on.
inline constexpr const char* kGateIds[] = {
    "additivity", "aa_noise",         "clock_drift", "overhead", "gpu_idle", "output_hash",
    "verbatim",   "verbatim_changed", "plan",        "anchor",   "ceiling",  "steady"};

struct Gate {
  std::string id;
  bool pass = false;
  std::optional<double> value;  // empty = there was nothing to judge
  std::optional<double> limit;
  std::string why;
};

struct Result {
  std::vector<std::string> command;  // the arguments as given
  Json machine;
  Json samples = Json::array();
  Json summary = Json::object();
  std::vector<Gate> gates;

  bool trusted() const;
  Json to_json() const;
};

Json gate_json(const Gate& gate);
// Gate `aa_noise` of what an arm and its twin differ by.
Gate noise_gate(const std::string& arm, const measure::NoiseFloor& noise);
Json machine_json(const measure::Machine& machine);
// Goes under machine.state, as `before` and `after`.
Json state_json(const measure::MachineState& state);
// A sample of run_rounds; `unit` names its value ("ns", "gbps").
Json sample_json(const std::string& arm, const measure::Sample& sample, const char* unit);

// "gate ceiling failed: ..." for each gate that did not pass.
std::vector<std::string> failed_gates(const std::vector<Gate>& gates);

}  // namespace fathom::report

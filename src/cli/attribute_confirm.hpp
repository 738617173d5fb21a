// SPDX-License-Identifier: Apache-2.0
// What `attribute --confirm` probes: the op of each knob alone, as it is and changed, at the shape
// of the deeper anchor, hot and cold, in this process.
#pragma once

#include <vector>

#include "cli/command.hpp"
#include "cli/confirm.hpp"
#include "measure/machine.hpp"
#include "measure/probe.hpp"

namespace fathom::cli {

struct ConfirmSetting {
  const ModelInfo& info;
  int page_tokens;
  int n_parallel;
  int64_t kv_tokens[2];  // of a sequence, that a step at each anchor reads
  uint64_t seed;
};

// Of one knob.
struct KnobProbe {
  std::vector<report::Confirmation::Probed> probed;
  std::vector<KernelLaunch> kernels_before, kernels_after;  // empty on a host
  measure::ProbedCall nodes_before, nodes_after;
  LaunchState launches(const ConfirmSetting& setting) const;
};

// In the order of the knobs. Those that leave the cache's type share their rounds, with the base in
// them; those that change it are probed after one another.
std::vector<KnobProbe> probe_knobs(const std::vector<Knob>& knobs, const Backend& backend,
                                   const ConfirmSetting& setting, const measure::Machine& machine,
                                   const CommonFlags& common);

// A probed call's kernels against those of the engine's captured step, nodes of graphs both.
// `id`: "verbatim" of the base, "verbatim_changed" of a knob.
report::Gate verbatim_gate(const char* id, const std::string& what,
                           const std::vector<KernelLaunch>& engine,
                           const measure::ProbedCall& probed);

}  // namespace fathom::cli

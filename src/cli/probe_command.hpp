// SPDX-License-Identifier: Apache-2.0
// What `fathom probe` was asked for, and what it found of each size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/probe_variants.hpp"
#include "measure/probe.hpp"

namespace fathom::cli {

struct ProbeFlags {
  std::string op, shape = "qwen2.5-7b", type = "q4_k", cache = "f16";
  std::string batches = "1", depths = "1,512,1641", memory = "hot,cold";
  std::vector<std::string> variants, sweep;
  int page_tokens = 64, n_rounds = 10;
  bool kernels_child = false, allow_busy = false;
  bool neighbours = false, no_times = false, list = false;
  uint64_t seed = 1;
};

struct ProbeCommand {
  const ProbeFlags& flags;
  const Context& context;
  const Backend& backend;
  ProbeSet set;
  std::vector<measure::ProbeInput> formats;  // of weights and cache, each with all sizes
  std::vector<measure::ProbeMemory> memories;
  std::vector<measure::ProbeSize> timed;    // in the order given
  std::vector<measure::ProbeSize> classed;  // those and their neighbours
  bool is_sweep() const { return !flags.sweep.empty(); }
};

inline constexpr const char* kKernelsChildFlag = "--kernels-child";

struct SizeResult {
  measure::ProbeInput input;
  std::vector<measure::BitVerdict>
      verdicts;  // of each variant, worst over the size's neighbours too
  std::optional<measure::ProbeTimes> times;
  std::vector<measure::CallTimes> calls;  // kernel by kernel; none where a call has but one
};

// The op by its name in the OpTable.
inline std::string probed_op(const ProbeFlags& flags) {
  return flags.op == "attn_decode" ? "attn" : flags.op;
}

}  // namespace fathom::cli

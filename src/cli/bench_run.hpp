// SPDX-License-Identifier: Apache-2.0
// The measuring of `bench`: a model is opened for each configuration, its tests take turns, and the
// samples are kept as the result document has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_arm.hpp"
#include "cli/bench_check.hpp"
#include "cli/command.hpp"
#include "cli/gpu_guard.hpp"
#include "cli/model_flags.hpp"
#include "measure/machine.hpp"
#include "report/bench_summary.hpp"

namespace fathom::cli {

inline constexpr int kTwinRounds = 6;  // fewer have no 95 % interval, so no noise floor

struct BenchFlags {
  ModelFlags model;
  std::string n_prompt = "512", n_gen = "128", depths = "0", threads = "0";
  std::string types_k = "f16", types_v = "f16", ubatch = "512", n_seqs = "1";
  std::vector<std::string> prompt_gen;
  int repetitions = 5;
  std::optional<int> profile_rounds;  // where -r was given
  std::optional<std::string> output;  // md
  bool no_warmup = false;
  bool profile = false;
  std::string profile_depths = "64,1641";
  std::string fills = "real";
  uint64_t seed = 1;
  bool no_aa = false;
  bool allow_busy = false;
  double stop_within_pct = 0;  // 0 = -r rounds
  double time_cap_s = 60;
  std::string compare, against, check_output, save_logits;

  // At least so many rounds.
  bool has_twin() const { return !no_aa && (repetitions >= kTwinRounds || stop_within_pct > 0); }
};

// One loaded model's worth of settings.
struct Configuration {
  int threads;
  std::string type_k, type_v;
  int n_ubatch;
};

// What the run has so far, over the configurations; figures come at the end.
struct Output {
  std::vector<report::BenchRow> rows;
  std::vector<report::BenchConfiguration> configurations;
  Json samples = Json::array();
  Json orders = Json::array();
};

// What all configurations share.
struct Session {
  const BenchFlags& flags;
  const CommonFlags& common;
  const measure::Machine& machine;
  GpuGuard& guard;
  std::optional<OutputCheck> check;
  LogitsFile logits;
};

// Adds the rows, samples and order of one configuration. Errors as of opening a model, and
// Error{cancelled}.
void measure_configuration(Output& out, const Configuration& configuration,
                           const std::vector<Test>& tests, Session& session);

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Where the time of a decode step and of the greedy draw after it goes, op by op, at several exact
// depths. The depths, traced and untraced steps and the read ceiling take turns in random order.
// The sum over the ops is set against the wall time of the same steps, and traced against untraced
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cache_fill.hpp"
#include "cli/command.hpp"
#include "fathom/fathom.hpp"
#include "measure/machine.hpp"
#include "measure/op_timer.hpp"
#include "report/profile_figures.hpp"
#include "report/result.hpp"

namespace fathom::cli {

inline constexpr int64_t kProfileContext = 4096;
inline constexpr int kProfileRounds = 15;

struct ProfileOptions {
  std::vector<int64_t> depths;  // the model needs max_sequences and n_ctx for all of them
  int rounds = kProfileRounds;
  uint64_t seed = 1;
  CacheFill fill = CacheFill::real;
};

using report::DepthProfile;

struct Profile {
  uint64_t seed = 0;
  int threads = 0;
  std::vector<DepthProfile> depths;
  std::vector<double> ceiling_gbps;  // [round]; empty where there is no ceiling to take
  double peak_gbps = 0;              // median; 0 = unknown
  int64_t cache_bytes = 0;           // in front of the memory that the model lies in
  std::vector<std::vector<int>> order;
  std::vector<report::Gate> gates;

  std::string text(bool colour) const;
  void add_to(report::Result& document) const;
};

// Throws Error{usage} when a step at one of the depths does not fit into the context.
void require_depths(const std::vector<int64_t>& depths, int64_t n_ctx);

Profile profile_decode(Model& model, const measure::Machine& machine, const ProfileOptions& options,
                       const CommonFlags& common);

// Says which gates failed on stderr; the exit status that this means.
int report_gates(const std::vector<report::Gate>& gates);

}  // namespace fathom::cli

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

// One depth. A round is a block of steps; it keeps the mean of its middle half by wall time, and
// the profile that of the rounds: steps that the system interrupts are left out, and the figures of
// the ops still add up, because they are means of the same steps.
struct DepthProfile {
  struct Round {
    double wall_ns = 0;         // around a watched step
    double outside_ns = 0;      // of it, outside every op
    std::vector<double> op_ns;  // in the order of `ops`
  };
  struct Op {
    std::string name;
    double ns = 0;  // of a step
    int64_t calls = 0;
    int64_t bytes = 0;  // weights and cache that one step must read
  };
  int64_t depth = 0;
  std::string kv_fill;  // "real" or "synthetic"
  int steps_per_block = 0;
  std::vector<double> untraced_ns;  // [round]
  std::vector<Round> traced;        // [round]
  std::vector<Op> ops;
  double sum_ns = 0;  // of the ops
  double wall_ns = 0;
  double untraced_mean_ns = 0;
};

struct Profile {
  uint64_t seed = 0;
  int threads = 0;
  std::vector<DepthProfile> depths;
  std::vector<double> ceiling_gbps;  // [round]; empty where there is no ceiling to take
  double peak_gbps = 0;              // median; 0 = unknown
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

// SPDX-License-Identifier: Apache-2.0
// What the blocks of a profile say: the ops of a step at each depth, and the gates. The profile
// itself and `report` compute them here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/fields.hpp"
#include "report/result.hpp"

namespace fathom::report {

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

// The mean over the middle half of the values, or of the rounds by their wall time: means of the
// same steps, so that the ops and what lies outside them still add up to it. REQUIRES: at least
// one.
double middle_mean(const std::vector<double>& values);
DepthProfile::Round middle_mean(const std::vector<DepthProfile::Round>& rounds);

// `wall_ns`, `sum_ns`, `untraced_mean_ns` and the times of the ops, from the rounds.
void fill_depth_figures(DepthProfile& depth);

// `ceiling_gbps` by round; empty where there was none to take.
std::vector<Gate> profile_gates(const std::vector<DepthProfile>& depths,
                                const std::vector<double>& ceiling_gbps, int64_t cache_bytes);

Json depth_json(const DepthProfile& depth, double peak_gbps);

// The depths of a stored document's `summary.profile`, with the rounds of its samples. Throws
// Error{bad_file}.
std::vector<DepthProfile> stored_depths(const Fields& profile, const Fields& samples);

}  // namespace fathom::report

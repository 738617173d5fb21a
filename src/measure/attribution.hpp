// SPDX-License-Identifier: Apache-2.0
// The difference of a step between two depths, launch by launch, and whether it adds up to what the
// steps take unwatched.
//   dW   growth of the unwatched step: Hodges-Lehmann over the rounds; of a device, those before
//        the profiler comes into the process
//   dx_i growth of a launch's exclusive time, dg_i of the idle time before it: means over the same
//        middle half of the rounds (ranked by the growth of the whole traced step), so that they
//        add up exactly; intervals by bootstrap over the rounds
//   R    dW - (sum dx + sum dg) must be small, and its interval narrow; where the profiler comes
//        later it has the errors of both windows
// Launches are aligned by (layer, op, ordinal).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/observation.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {

inline constexpr double kClosureShare = 0.02;     // of dW may be left,
inline constexpr double kClosureNs = 500;         // or so much, or the A/A floor: the most of them
inline constexpr double kOverheadShare = 0.10;    // of a step is what watching may cost
inline constexpr double kClockDriftShare = 0.02;  // between the arms
inline constexpr double kFloorShare = 0.10;       // of dW: a higher A/A floor hides what grew

enum class Match { matched, replaced, added, removed };
const char* match_name(Match match);

struct Estimate {
  double value = 0;
  Interval interval{0, 0};  // 95 %
  double half_width() const { return (interval.hi - interval.lo) / 2; }
};

// Times are of a step, in nanoseconds.
struct LaunchGrowth {
  LaunchKey key;
  Match match = Match::matched;
  std::string kernel_lo, kernel_hi;  // empty where there is none
  double lo_ns = 0, hi_ns = 0;       // exclusive
  double gap_lo_ns = 0, gap_hi_ns = 0;
  Estimate growth;      // exclusive
  Estimate gap_growth;  // of the idle time before it
};

// All launches of one op.
struct OpGrowth {
  std::string op;
  Match match = Match::matched;  // that of all its launches, or `replaced` where they differ
  int64_t launches_lo = 0, launches_hi = 0;
  double lo_ns = 0, hi_ns = 0;
  double gap_lo_ns = 0, gap_hi_ns = 0;
  Estimate growth;
  Estimate gap_growth;
  std::vector<double> layer_growth_ns;  // [layer]; what is outside the layers is not in it
};

// One thing that differs between the unwatched growth and the sum, and by how much.
struct Term {
  std::string name;
  double ns = 0;
};

struct Closure {
  double unwatched_ns[2] = {0, 0};  // the step at the anchors whose growth is
  Estimate growth;                  // dW
  Estimate sum;                     // of all rows
  Estimate residual;                // dW - sum
  double aa_floor_ns = 0;           // the largest difference that equal blocks may have
  double limit_ns = 0;              // for the residual and for its interval's half-width
  std::string limit_why;            // "2 % of the growth", ...
  double per_launch_ns = 0;         // cost of watching one
  double correction_ns =
      0;  // taken off the sum, where the depths run different numbers of launches
  bool closes = false;
  bool precise = false;     // the interval is narrow enough
  std::vector<Term> terms;  // what the residual consists of, largest first
};

struct Line {
  double intercept_ns = 0;
  double slope_ns = 0;              // of a token
  std::vector<double> residual_ns;  // [depth]
};

struct Attribution {
  std::vector<double> untraced_ns;    // [depth], a step: median over the blocks
  std::vector<Interval> untraced_ci;  // 95 %, bootstrap
  double overhead[2] = {0, 0};        // of watching, a share, at each anchor
  Estimate aa[2];                     // second minus first block of the anchors' pairs
  double clock_drift = 0;             // largest share between arms; < 0 = not known
  Closure closure;
  std::vector<LaunchGrowth> launches;  // largest growth first
  std::vector<OpGrowth> ops;           // largest growth first
  Estimate gaps;                       // growth of all idle time
  double gaps_lo_ns = 0, gaps_hi_ns = 0;
  double overlap_lo_ns = 0, overlap_hi_ns = 0;  // time in which kernels ran side by side
  Line line;  // least squares over all depths, token positions as x
};

// REQUIRES: a round at least, traced samples at both anchors, no Observation::problem.
// `kv_tokens`: how many tokens of the cache a step at each depth reads.
Attribution attribute(const Observation& observation, const std::vector<int64_t>& kv_tokens);

// What observe() may stop at: R's interval is as narrow as 2 % of the growth or 0.5 us ask for.
bool residual_is_precise(const Observation& observation);
// The same for each of two windows, whose errors add: of dW in an observation without traced arms,
// of the sum in one with them.
bool part_is_precise(const Observation& observation);

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// The census of a window of traced steps: what each launch adds to the time of a step, and how long
// the device idles before it. Records are walked in the order of their starts; E is the latest end
// so far:
//   exclusive_i = max(0, end_i - max(start_i, E))     gap_i = max(0, start_i - E)
// so overlapping kernels are never counted twice and, exactly,
//   sum(exclusive) + sum(gap) = E(end of the step) - E(end of the step before)
// for every step. The first step of a window only gives the E from which the others count; of
// these, the quiet ones are summed (quiet_steps.hpp).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "device/trace.hpp"

namespace fathom::measure {

struct LaunchKey {
  int layer = -1;
  std::string op;
  int ordinal = 0;
  auto operator<=>(const LaunchKey&) const = default;
};

// One launch of the plan of a step, the same in each of its runs.
struct Launch {
  LaunchKey key;
  std::string kernel;
  std::array<int, 3> grid{}, block{};
  int64_t shared_bytes = 0;
  int registers = 0;
  bool operator==(const Launch&) const = default;
};

struct Census {
  std::vector<Launch> plan;  // in the order of the first counted step
  int64_t n_steps = 0;       // summed
  // Sums over these steps, by place in the plan.
  std::vector<int64_t> exclusive_ns, gap_ns;
  int64_t span_ns = 0;  // = the sum of both
  int64_t busy_ns = 0;  // sum of the durations: more than the exclusive time where kernels overlap
  std::string problem;  // not empty: the window proves nothing, and nothing else is filled
};

// Refuses (Census::problem) windows with lost or invalid records, of fewer than two steps, or whose
// steps did not run the same launches.
Census take_census(const TraceWindow& window);

}  // namespace fathom::measure

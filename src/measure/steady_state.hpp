// SPDX-License-Identifier: Apache-2.0
// Has a series of repeated measurements settled, and how did it get there? It is cut into pieces of
// constant level (least squares; each cut must earn the BIC penalty), the levels are set against
// the last one, and the slope inside the last piece must be able to be 0.
//   cost of a cut: sum (x - mean)^2 / sigma^2 over the pieces + 2 ln n for each cut, at its best
//   (optimal partitioning); sigma from the differences of neighbours, so that steps do not widen it
// Sources: Barrett et al., OOPSLA 2017 (the classes); Killick et al. 2012 (the partitioning).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.hpp"

namespace fathom::measure {

// Fewer values prove nothing either way.
inline constexpr size_t kSteadySamples = 10;
// Levels closer than this are one level.
inline constexpr double kSameLevel = 0.01;

enum class Steadiness {
  flat,      // one level from the first value on
  warm_up,   // settled, faster than before
  slowdown,  // settled, slower than before
  none       // still moving at the end
};
const char* steadiness_name(Steadiness steadiness);

struct SteadyState {
  std::optional<Steadiness> steadiness;  // none below kSteadySamples values
  std::vector<size_t> starts;            // of the pieces, the first at 0
  std::vector<double> levels;            // their medians
  Interval slope{0, 0};  // of the last piece, 95 %, as a share of its level for each value
  std::string why;
  // What a headline may be made of: the last piece. All of it when nothing was judged.
  size_t steady_from() const { return starts.empty() ? 0 : starts.back(); }
};

// Of positive values in the order in which they were taken. Single spikes are no pieces.
SteadyState find_steady_state(std::span<const double> values);

}  // namespace fathom::measure

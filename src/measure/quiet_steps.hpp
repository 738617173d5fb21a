// SPDX-License-Identifier: Apache-2.0
// Which of a block's steps count: by time, the second quarter from the quickest on. What interrupts
// a step only ever adds time, so up to half of the steps may be interrupted; the very quickest
// decide nothing either. Sums over the same steps still add up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace fathom::measure {

// Places in `times`, by time; one at least. REQUIRES: one value at least.
inline std::vector<size_t> quiet_steps(std::span<const int64_t> times) {
  std::vector<size_t> places(times.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return times[a] < times[b]; });
  const size_t begin = times.size() / 4;
  const size_t end = std::max(begin + 1, (times.size() + 1) / 2);
  return {places.begin() + static_cast<std::ptrdiff_t>(begin),
          places.begin() + static_cast<std::ptrdiff_t>(end)};
}

inline double quiet_mean(std::span<const int64_t> times) {
  double sum = 0;
  const std::vector<size_t> places = quiet_steps(times);
  for (const size_t place : places) sum += static_cast<double>(times[place]);
  return sum / static_cast<double>(places.size());
}

}  // namespace fathom::measure

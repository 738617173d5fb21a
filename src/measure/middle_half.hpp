// SPDX-License-Identifier: Apache-2.0
// The middle half of some values: without the lowest and the highest quarter. What the system
// interrupts is left out, and sums over the places that remain still add up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace fathom::measure {

// Places in `values`, by value; all of fewer than four.
inline std::vector<size_t> middle_half(std::span<const int64_t> values) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return values[a] < values[b]; });
  const auto quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
  return {places.begin() + quarter, places.end() - quarter};
}

// REQUIRES: one value at least.
inline double middle_mean(std::span<const int64_t> values) {
  double sum = 0;
  const std::vector<size_t> places = middle_half(values);
  for (const size_t place : places) sum += static_cast<double>(values[place]);
  return sum / static_cast<double>(places.size());
}

}  // namespace fathom::measure

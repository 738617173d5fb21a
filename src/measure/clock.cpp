// SPDX-License-Identifier: Apache-2.0
// What the clock itself is good for: the cost of a call and the smallest step that it shows.
#include "measure/clock.hpp"

#include <algorithm>
#include <limits>

namespace fathom::measure {

ClockQuality clock_quality() {
  constexpr int kCalls = 100'000;
  int64_t resolution = std::numeric_limits<int64_t>::max();
  const int64_t start = now_ns();
  int64_t last = start;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t now = now_ns();
    if (now > last) resolution = std::min(resolution, now - last);
    last = now;
  }
  return {static_cast<double>(last - start) / kCalls, resolution};
}

}  // namespace fathom::measure

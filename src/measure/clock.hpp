// SPDX-License-Identifier: Apache-2.0
// The host clock of every measurement: CLOCK_MONOTONIC, in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>
#include <functional>

namespace fathom::measure {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// now_ns, or what a test puts in its place.
using Clock = std::function<int64_t()>;

// Nanoseconds that one now_ns() call costs here, and the smallest step it can show.
struct ClockQuality {
  double call_ns;
  int64_t resolution_ns;
};
ClockQuality clock_quality();

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// The chain and its timing.
#include "measure/cpu_speed.hpp"

#include <algorithm>
#include <cstdint>

#include "measure/clock.hpp"

namespace fathom::measure {

double cpu_speed() {
  constexpr int kLinks = 20'000;
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    uint64_t value = static_cast<uint64_t>(run) | 1;
    const int64_t start = now_ns();
    for (int i = 0; i < kLinks; ++i) {
      value *= 0x9e3779b97f4a7c15;
      asm volatile("" : "+r"(value));  // each link waits for the one before
    }
    best = std::max(best, kLinks / static_cast<double>(now_ns() - start));
  }
  return best;
}

}  // namespace fathom::measure

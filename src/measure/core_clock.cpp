// SPDX-License-Identifier: Apache-2.0
// Each multiplication waits for the one before.
#include "measure/core_clock.hpp"

#include <algorithm>
#include <cstdint>

#include "measure/clock.hpp"

namespace fathom::measure {
namespace {

constexpr int kMultiplyCycles = 3;  // latency of a 32-bit multiplication, x86 since 2011
constexpr int kChain = 8;
constexpr int kLinks = 400;
constexpr int kBursts = 8;

int64_t burst_ns() {
  uint32_t x = 1;
  const int64_t start = now_ns();
  for (int link = 0; link < kLinks; ++link) {
    for (int i = 0; i < kChain; ++i) {
      x *= 0x9E3779B1u;
      asm volatile("" : "+r"(x));  // one multiplication after the other, none left out
    }
  }
  return now_ns() - start;
}

}  // namespace

double core_clock_mhz() {
  int64_t least = burst_ns();
  for (int burst = 1; burst < kBursts; ++burst) least = std::min(least, burst_ns());
  return 1e3 * kMultiplyCycles * kChain * kLinks / static_cast<double>(std::max<int64_t>(least, 1));
}

}  // namespace fathom::measure

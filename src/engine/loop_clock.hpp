// SPDX-License-Identifier: Apache-2.0
// The clock of the loops over tokens.
#pragma once

#include <chrono>

namespace fathom::engine {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace fathom::engine

// SPDX-License-Identifier: Apache-2.0
// What every loop over tokens watches: its clock, and the caller's wish to stop.
#pragma once

#include <atomic>
#include <chrono>

#include "base/error.hpp"

namespace fathom::engine {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Throws Error{cancelled} once the flag, which may be null, is set.
inline void stop_if_cancelled(const std::atomic<bool>* cancel) {
  if (cancel && cancel->load(std::memory_order_relaxed)) {
    fail(ErrorCode::cancelled, "interrupted");
  }
}

}  // namespace fathom::engine

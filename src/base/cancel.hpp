// SPDX-License-Identifier: Apache-2.0
// A flag that another thread or a signal handler sets to end a long run.
#pragma once

#include <atomic>

#include "base/error.hpp"

namespace fathom {

// Throws Error{cancelled} once the flag is set; null = cannot be cancelled.
inline void stop_if_cancelled(const std::atomic<bool>* cancel) {
  if (cancel && cancel->load(std::memory_order_relaxed)) {
    fail(ErrorCode::cancelled, "interrupted");
  }
}

}  // namespace fathom

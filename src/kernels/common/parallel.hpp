// SPDX-License-Identifier: Apache-2.0
// parallel_for: runs fn(begin, end) over 0..total-1 in runs of `grain`, on a pool if there is one.
#pragma once

#include <cstdint>

#include "base/thread_pool.hpp"

namespace fathom {

template <class Fn>
void parallel_for(ThreadPool* pool, int64_t total, int64_t grain, Fn&& fn) {
  if (!pool || pool->size() == 1 || total <= grain) {
    if (total > 0) fn(int64_t{0}, total);
    return;
  }
  Chunks chunks(total, grain);
  pool->run([&](Team&) {
    for (int64_t begin, end; chunks.next(begin, end);) fn(begin, end);
  });
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The choice of the instruction set, and the timing of the chains on all threads.
#include "measure/flop_peak.hpp"

#include <algorithm>
#include <mutex>

#include "base/cpu_features.hpp"
#include "base/thread_pool.hpp"
#include "measure/clock.hpp"
#include "measure/flop_chain.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kPasses = 200'000;  // under a millisecond a run

const FlopChainTable& best_table() {
  for (const FlopChainTable* table : {&kFlopChainAvx512, &kFlopChainAvx2}) {
    if (cpu_isa_usable(table->isa)) return *table;
  }
  return kFlopChainScalar;
}

}  // namespace

FlopPeak::FlopPeak(int threads)
    : pool_(std::make_unique<ThreadPool>(ThreadPool::choose_threads(threads))) {}

FlopPeak::~FlopPeak() = default;

const char* FlopPeak::isa() const { return best_table().isa; }

double FlopPeak::sample_gflops(double seconds) {
  const FlopChainTable& table = best_table();
  std::mutex mutex;
  double best = 0;
  const int64_t until = now_ns() + static_cast<int64_t>(seconds * 1e9);
  do {
    const int64_t start = now_ns();
    pool_->run([&](Team&) {
      const float sum = table.run(kPasses);
      const std::lock_guard lock(mutex);
      sum_ += sum;
    });
    const double flops = 2.0 * kFlopChains * table.floats * kPasses * pool_->size();
    best = std::max(best, flops / static_cast<double>(now_ns() - start));
  } while (now_ns() < until);
  return best;
}

}  // namespace fathom::measure

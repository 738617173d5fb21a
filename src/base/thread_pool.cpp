// SPDX-License-Identifier: Apache-2.0
// The waits (spin, yield, park), the pinning of workers, and the barrier that joins the ranks.
#include "base/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom {
namespace {

// How long a rank that waits keeps its core: spinning covers the gaps between the regions of a
// step, yielding gives way to whoever else wants the core, and only then does a worker park.
constexpr auto kSpinTime = std::chrono::microseconds(40);
constexpr auto kYieldTime = std::chrono::milliseconds(2);

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// One wait: step() is called until the condition holds, and says when it is time to park.
class Waiter {
 public:
  // Spins or yields once; false when kSpinTime + kYieldTime have passed.
  bool step() {
    if (++rounds_ % 32 != 0) {
      if (yielding_) {
        std::this_thread::yield();
      } else {
        pause();
      }
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (rounds_ == 32) start_ = now;
    const auto waited = now - start_;
    yielding_ = waited > kSpinTime;
    return waited < kSpinTime + kYieldTime;
  }

 private:
  uint32_t rounds_ = 0;
  bool yielding_ = false;
  std::chrono::steady_clock::time_point start_;
};

std::vector<int> affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  return cpus;
}

void pin_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

struct ThreadPool::Shared {
  alignas(64) std::atomic<uint64_t> generation{0};  // odd bits unused; each region adds one
  alignas(64) std::atomic<int> pending{0};          // workers still inside the region
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> barrier_phase{0};
  alignas(64) std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  Invoke invoke = nullptr;
  void* fn = nullptr;
  std::mutex mutex;
  std::condition_variable wake;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;

  // Ends the workers, which are outside any region.
  void stop_and_join() {
    {
      std::lock_guard lock(mutex);
      stop.store(true);
      generation.fetch_add(1);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int n_threads, bool pin)
    : n_threads_(std::max(1, n_threads)), shared_(std::make_unique<Shared>()) {
  const std::vector<int> cpus = affinity_cpus();
  const bool can_pin = pin && static_cast<int>(cpus.size()) >= n_threads_;
  shared_->threads.reserve(static_cast<size_t>(n_threads_ - 1));
  try {
    for (int rank = 1; rank < n_threads_; ++rank) {
      shared_->threads.emplace_back([this, rank] { worker(rank); });
      if (can_pin) pin_to(shared_->threads.back(), cpus[rank]);
    }
  } catch (const std::system_error& refused) {
    const size_t started = shared_->threads.size() + 1;  // with the caller
    shared_->stop_and_join();
    fail(ErrorCode::unavailable, "{} threads are wanted and this machine gives {} ({}): use -t {}",
         n_threads_, started, refused.code().message(), started);
  }
}

ThreadPool::~ThreadPool() { shared_->stop_and_join(); }

void ThreadPool::execute(int rank) {
  Team team{this, rank, n_threads_};
  try {
    shared_->invoke(shared_->fn, team);
  } catch (...) {
    std::lock_guard lock(shared_->error_mutex);
    if (!shared_->error) shared_->error = std::current_exception();
  }
}

void ThreadPool::worker(int rank) {
  uint64_t seen = 0;
  while (true) {
    Waiter waiter;
    while (shared_->generation.load(std::memory_order_acquire) == seen) {
      if (waiter.step()) continue;
      std::unique_lock lock(shared_->mutex);
      shared_->sleepers.fetch_add(1, std::memory_order_seq_cst);
      shared_->wake.wait(lock, [&] { return shared_->generation.load() != seen; });
      shared_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    if (shared_->stop.load()) return;
    seen = shared_->generation.load(std::memory_order_acquire);
    execute(rank);
    shared_->pending.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::run_erased(Invoke invoke, void* fn) {
  Shared& s = *shared_;
  s.invoke = invoke;
  s.fn = fn;
  s.pending.store(n_threads_ - 1, std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    { std::lock_guard lock(s.mutex); }
    s.wake.notify_all();
  }
  execute(0);
  Waiter waiter;
  while (s.pending.load(std::memory_order_acquire) > 0) waiter.step();
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

void ThreadPool::barrier() {
  Shared& s = *shared_;
  const uint32_t phase = s.barrier_phase.load(std::memory_order_relaxed);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    s.arrived.store(0, std::memory_order_relaxed);
    s.barrier_phase.store(phase + 1, std::memory_order_release);
    return;
  }
  Waiter waiter;
  while (s.barrier_phase.load(std::memory_order_acquire) == phase) waiter.step();
}

int ThreadPool::usable_cpus() {
  int cpus = std::max<int>(1, static_cast<int>(affinity_cpus().size()));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    long long quota = 0, period = 0;
    if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && period > 0) {
      cpus = std::min(cpus, std::max(1, static_cast<int>((quota + period - 1) / period)));
    }
    std::fclose(file);
  }
  return cpus;
}

int ThreadPool::max_threads() {
  constexpr int kLeast = 16, kMost = 1024, kPerCpu = 4;
  return std::clamp(kPerCpu * usable_cpus(), kLeast, kMost);
}

int ThreadPool::choose_threads(int64_t wanted) {
  if (wanted < 0 || wanted > max_threads()) {
    fail(ErrorCode::usage,
         "threads (-t): found {}, expected 0 (all cores) to {}: more wait for one another on the "
         "{} usable cores; use -t 0",
         wanted, max_threads(), usable_cpus());
  }
  return wanted ? static_cast<int>(wanted) : usable_cpus();
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// A pool of pinned workers with a spin-then-park barrier. run() opens one parallel region in which
// the caller is rank 0; inside a region, barrier() joins all ranks and Chunks deals work by an
// atomic counter, so a core that is taken away for a while does less and holds up nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <vector>

namespace fathom {

class ThreadPool;

// Deals the numbers 0..total-1 in runs of `grain` to the ranks of one region.
class Chunks {
 public:
  Chunks(int64_t total, int64_t grain) : total_(total), grain_(grain < 1 ? 1 : grain) {}

  // Takes the next run; false when all are taken.
  bool next(int64_t& begin, int64_t& end) {
    begin = taken_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= total_) return false;
    end = begin + grain_ < total_ ? begin + grain_ : total_;
    return true;
  }

 private:
  const int64_t total_;
  const int64_t grain_;
  alignas(64) std::atomic<int64_t> taken_{0};
};

// One rank's view of a region.
struct Team {
  ThreadPool* pool;
  int rank;
  int size;
  void barrier();  // all ranks of the region must call it
};

class ThreadPool {
 public:
  // n_threads includes the caller; 1 starts no worker. Workers are pinned to the CPUs of the
  // process's affinity mask when `pin` is set and the mask has at least n_threads of them. Throws
  // Error{unavailable} when the system does not give that many threads.
  explicit ThreadPool(int n_threads, bool pin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return n_threads_; }

  // Runs fn(Team&) once on every rank and returns when all are done. The first exception thrown
  // by any rank is thrown again here. A region that throws must not hold others at a barrier.
  template <class Fn>
  void run(Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run_erased([](void* f, Team& team) { (*static_cast<F*>(f))(team); }, &fn);
  }

  // Cores this process may use: the affinity mask, cut by the cgroup's CPU quota.
  static int usable_cpus();

  // The n_threads of a user's wish; 0 = usable_cpus(). Throws Error{usage} below 0 and above
  // max_threads(), where ranks spin at barriers for others that have no core.
  static int choose_threads(int64_t wanted);
  static int max_threads();

 private:
  friend struct Team;
  using Invoke = void (*)(void*, Team&);
  void run_erased(Invoke invoke, void* fn);
  void worker(int rank);
  void barrier();
  void execute(int rank);

  struct Shared;
  const int n_threads_;
  std::unique_ptr<Shared> shared_;
};

inline void Team::barrier() {
  if (size > 1) pool->barrier();
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The scheduler of fibers, and the waits, barriers and copies that they go through.
#include "emulator/block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "base/error.hpp"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace fathom::emulator {
namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 256;  // behind the dynamic shared memory that was asked for
constexpr auto kGuard = std::byte{0xa5};
alignas(1024) std::byte shared_memory[kMaxSharedBytes + kGuardBytes];

class Block {
 public:
  Block(int n_threads, const std::function<void()>& kernel, uint64_t seed, size_t shared_bytes);
  void run();
  Thread& current() { return threads_[static_cast<size_t>(current_)]; }
  WarpExchange& warp() { return warps_[static_cast<size_t>(current_ / kWarpSize)]; }
  Barrier& barrier(int id) { return barriers_.at(static_cast<size_t>(id)); }
  std::map<const void*, PhaseBarrier>& phases() { return phases_; }
  int n_threads() const { return static_cast<int>(threads_.size()); }
  void suspend() { scheduler_ = std::move(scheduler_).resume(); }
  // The others go on first. A block whose threads do nothing else for long is stuck.
  void give_way();
  void goes_on() { n_polls_ = 0; }

 private:
  context::fiber start(Thread& thread);
  void resume(Thread& thread);
  bool run_warp(int warp);
  void report_deadlock();
  void check_end();

  std::vector<Thread> threads_;
  std::vector<WarpExchange> warps_;
  std::array<Barrier, kMaxBarriers> barriers_;
  std::map<const void*, PhaseBarrier> phases_;
  const std::function<void()>& kernel_;
  size_t shared_bytes_;
  std::vector<int> warp_order_, lane_order_;
  bool warps_run_far_;  // each until all its lanes wait for others; else one round of lanes
  int current_ = 0, n_done_ = 0, n_polls_ = 0;
  bool gave_way_ = false;  // the thread that ran last
  context::fiber scheduler_;
  std::exception_ptr error_;
};

Block* block = nullptr;  // that runs

std::vector<int> shuffled(int n, std::mt19937_64& random) {
  std::vector<int> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

Block::Block(int n_threads, const std::function<void()>& kernel, uint64_t seed, size_t shared_bytes)
    : threads_(static_cast<size_t>(n_threads)),
      warps_(static_cast<size_t>(n_threads / kWarpSize)),
      kernel_(kernel),
      shared_bytes_(shared_bytes) {
  std::mt19937_64 random(seed);
  warp_order_ = shuffled(n_threads / kWarpSize, random);
  lane_order_ = shuffled(kWarpSize, random);
  warps_run_far_ = seed % 2 == 0;
  std::memset(shared_memory, 0xff, shared_bytes);
  std::fill_n(shared_memory + shared_bytes, kGuardBytes, kGuard);
  for (int i = 0; i < n_threads; ++i) {
    Thread& thread = threads_[static_cast<size_t>(i)];
    thread.index = i;
    thread.fiber = start(thread);
  }
}

context::fiber Block::start(Thread& thread) {
  static context::pooled_fixedsize_stack stacks(kStackBytes);
  return context::fiber(std::allocator_arg, stacks, [this, &thread](context::fiber&& scheduler) {
    scheduler_ = std::move(scheduler);
    try {
      kernel_();
      if (!thread.open_copies.empty()) fail_kernel("copies were started and not committed");
      for (const auto& group : thread.copy_groups) {
        if (!group.empty()) fail_kernel("copies were not waited for");
      }
    } catch (const context::detail::forced_unwind&) {
      throw;  // an error elsewhere ended the block
    } catch (...) {
      error_ = std::current_exception();
    }
    thread.done = true;
    ++n_done_;
    return std::move(scheduler_);
  });
}

void Block::give_way() {
  constexpr int kMost = 1'000'000;
  if (++n_polls_ > kMost) fail_kernel("threads ask for something in shared memory for ever");
  gave_way_ = true;
  suspend();
}

void Block::resume(Thread& thread) {
  current_ = thread.index;
  gave_way_ = false;
  threadIdx = dim3(static_cast<unsigned>(thread.index), 0, 0);
  thread.fiber = std::move(thread.fiber).resume();
  if (error_) std::rethrow_exception(error_);
}

// True: a lane went on.
bool Block::run_warp(int warp) {
  bool any = false, moved = false;
  do {
    moved = false;
    for (const int lane : lane_order_) {
      Thread& thread = threads_[static_cast<size_t>(warp * kWarpSize + lane)];
      const bool waits = thread.waits_for && thread.waits_for->generation() == thread.generation;
      if (thread.done || waits) continue;
      resume(thread);
      any = true;
      moved |= !gave_way_;
    }
  } while (moved && warps_run_far_);
  return any;
}

void Block::report_deadlock() {
  std::string text = "deadlock:";
  for (int warp = 0; warp < static_cast<int>(warps_.size()); ++warp) {
    const auto first = threads_.begin() + warp * kWarpSize;
    const auto waiting = std::find_if(first, first + kWarpSize, [](auto& t) { return !t.done; });
    if (waiting == first + kWarpSize) continue;
    text += fmt::format(" thread {} waits in {};", waiting->index, waiting->at);
  }
  fail_kernel(text);
}

void Block::check_end() {
  for (size_t id = 0; id < barriers_.size(); ++id) {
    if (barriers_[id].arrived() == 0) continue;
    fail_kernel(fmt::format("barrier {} is left with {} arrivals", id, barriers_[id].arrived()));
  }
  for (const auto& [address, barrier] : phases_) {
    if (!barrier.copies.empty()) fail_kernel("copies were not waited for");
    if (barrier.arrived != 0) {
      fail_kernel(fmt::format("a barrier in shared memory is left with {} of {} arrivals",
                              barrier.arrived, barrier.n_arrivals));
    }
  }
  const std::byte* guard = shared_memory + shared_bytes_;
  if (!std::all_of(guard, guard + kGuardBytes, [](std::byte b) { return b == kGuard; })) {
    fail_kernel(fmt::format("written past the {} bytes of shared memory", shared_bytes_));
  }
}

void Block::run() {
  while (n_done_ < n_threads()) {
    bool moved = false;
    for (const int warp : warp_order_) moved |= run_warp(warp);
    if (!moved) report_deadlock();
  }
  check_end();
}

void run_block(const std::function<void()>& kernel, uint64_t seed, size_t shared_bytes) {
  Block running(static_cast<int>(blockDim.x), kernel, seed, shared_bytes);
  block = &running;
  try {
    running.run();
  } catch (...) {
    block = nullptr;
    throw;
  }
  block = nullptr;
}

}  // namespace

void fail_kernel(const std::string& what) {
  fail(ErrorCode::device_fault, "emulated kernel: {} (block {}, {}, {}; thread {})", what,
       blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
}

bool Barrier::arrive(int thread, int n_threads) {
  if (arrived_ == 0) n_threads_ = n_threads;
  if (n_threads != n_threads_) {
    fail_kernel(
        fmt::format("a barrier of {} threads is one of {} to others", n_threads, n_threads_));
  }
  if (who_[static_cast<size_t>(thread)]) fail_kernel("a thread arrives twice at a barrier");
  who_.set(static_cast<size_t>(thread));
  if (++arrived_ < n_threads) return false;
  arrived_ = 0;
  who_.reset();
  ++generation_;
  return true;
}

void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()>& kernel) {
  static uint64_t seed = 0;  // other orders in each launch too
  gridDim = grid;
  blockDim = threads;
  blockIdx = threadIdx = dim3(0, 0, 0);
  if (threads.y != 1 || threads.z != 1 || threads.x % kWarpSize != 0 || threads.x > kMaxThreads) {
    fail_kernel("a block is whole warps in one dimension");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) fail_kernel("the grid is empty");
  if (shared_bytes > kMaxSharedBytes) fail_kernel("more shared memory than a block can have");
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block(kernel, seed++, shared_bytes);
      }
    }
  }
}

Thread& this_thread() { return block->current(); }
WarpExchange& this_warp() { return block->warp(); }
int block_threads() { return block->n_threads(); }
std::byte* dynamic_shared_memory() { return shared_memory; }

void wait_for(const Barrier& barrier, unsigned generation, const char* instruction) {
  Thread& thread = this_thread();
  thread.waits_for = &barrier;
  thread.generation = generation;
  thread.at = instruction;
  block->suspend();
  thread.waits_for = nullptr;
}

void barrier_sync(int id, int n_threads, const char* instruction) {
  Barrier& barrier = block->barrier(id);
  const unsigned generation = barrier.generation();
  if (!barrier.arrive(this_thread().index, n_threads)) wait_for(barrier, generation, instruction);
}

void barrier_arrive(int id, int n_threads) {
  block->barrier(id).arrive(this_thread().index, n_threads);
}

namespace {

PhaseBarrier& phase_barrier(const void* at) {
  const auto found = block->phases().find(at);
  if (found == block->phases().end()) fail_kernel("a barrier in shared memory was not initialised");
  return found->second;
}

void end_phase(PhaseBarrier& barrier) {
  block->goes_on();
  barrier.arrived = 0;
  barrier.phase.open();
}

void deliver(PhaseBarrier& barrier) {
  for (const PhaseBarrier::BulkCopy& copy : barrier.copies) {
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  }
  barrier.copies.clear();
  end_phase(barrier);
}

}  // namespace

void phase_init(const void* at, int n_arrivals) {
  if (block->phases().contains(at)) fail_kernel("a barrier in shared memory is initialised twice");
  block->phases()[at].n_arrivals = n_arrivals;
}

void phase_arrive(const void* at) {
  PhaseBarrier& barrier = phase_barrier(at);
  if (++barrier.arrived == barrier.n_arrivals) end_phase(barrier);
}

void phase_copy(const void* at, void* to, const void* from, int bytes) {
  constexpr uintptr_t kAlignment = 16;
  if (reinterpret_cast<uintptr_t>(to) % kAlignment != 0 ||
      reinterpret_cast<uintptr_t>(from) % kAlignment != 0 || bytes % kAlignment != 0) {
    fail_kernel("a bulk copy is not aligned to 16 bytes");
  }
  std::memset(to, 0xff, static_cast<size_t>(bytes));  // whoever reads too early sees it
  phase_barrier(at).copies.push_back({to, from, bytes});
}

void phase_copied(const void* at) {
  PhaseBarrier& barrier = phase_barrier(at);
  if (barrier.n_waiting > 0) deliver(barrier);
}

void phase_wait(const void* at, unsigned parity) {
  PhaseBarrier& barrier = phase_barrier(at);
  if (!barrier.copies.empty() && barrier.phase.generation() % 2 == parity) deliver(barrier);
  ++barrier.n_waiting;
  while (barrier.phase.generation() % 2 == parity) {
    wait_for(barrier.phase, barrier.phase.generation(), "a wait for a barrier in shared memory");
  }
  --barrier.n_waiting;
}

bool phase_test(const void* at, unsigned parity) {
  const PhaseBarrier& barrier = phase_barrier(at);
  if (barrier.phase.generation() % 2 != parity) return true;
  block->give_way();
  return false;
}

void copy_async(void* to, const void* from, bool inside) {
  constexpr uintptr_t kAlignment = 16;
  if (reinterpret_cast<uintptr_t>(to) % kAlignment != 0 ||
      reinterpret_cast<uintptr_t>(from) % kAlignment != 0) {
    fail_kernel("an asynchronous copy is not aligned to 16 bytes");
  }
  std::memset(to, 0xff, kAlignment);  // whoever reads too early sees it
  this_thread().open_copies.push_back({to, from, inside});
}

void commit_copies() {
  Thread& thread = this_thread();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void wait_for_copies(int n_pending) {
  auto& groups = this_thread().copy_groups;
  while (groups.size() > static_cast<size_t>(n_pending)) {
    for (const Copy& copy : groups.front()) {
      if (copy.inside) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups.pop_front();
  }
}

}  // namespace fathom::emulator

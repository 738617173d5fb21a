// SPDX-License-Identifier: Apache-2.0
// A block of CUDA threads on the host: each thread is a fiber of Boost.Context, and one thread of
// the host runs them in turn. A fiber runs until it waits for others, so that what a kernel may not
// rely on is decided anew in each block: the order of warps and lanes is drawn from its index.
// Beside results, a block looks for what hardware forgives at times: shared memory is poisoned
// (0xff: NaN, -1) before it, an asynchronous copy lands when its thread waits for it and no
// earlier, and waits that nobody ends are errors. Errors are thrown through the launch.
#pragma once

#include <array>
#include <bitset>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emulator/cuda_types.hpp"

namespace fathom::emulator {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxSharedBytes = 227 << 10;     // of a block on sm_90
inline constexpr int kReservedSharedBytes = 1 << 10;  // of each block, beside its own
inline constexpr int kMaxBarriers = 16;

// Throws Error{device_fault}: what happened, and in which block and thread.
[[noreturn]] void fail_kernel(const std::string& what);

// Where n threads meet, again and again.
class Barrier {
 public:
  // Counts a thread in. True: it was the last; the next generation begins.
  bool arrive(int thread, int n_threads);
  // The next generation begins, whoever has arrived.
  void open() { ++generation_; }
  unsigned generation() const { return generation_; }
  int arrived() const { return arrived_; }

 private:
  int arrived_ = 0, n_threads_ = 0;
  unsigned generation_ = 0;
  std::bitset<kMaxThreads> who_;
};

struct Copy {
  void* to;
  const void* from;
  bool inside;  // false: zeros, and `from` is not read
};

// What the lanes of a warp hand each other. Two of each, used in turn: a lane may be one
// instruction ahead of those that still read.
struct WarpExchange {
  static constexpr size_t kMaxIn = 32, kMaxOut = 32;  // bytes of a lane
  Barrier barrier;
  const char* instruction = nullptr;  // that the lanes are at
  alignas(16) std::byte in[2][kWarpSize][kMaxIn];
  alignas(16) std::byte out[2][kWarpSize][kMaxOut];
};

// A barrier in shared memory.
struct PhaseBarrier {
  struct BulkCopy {
    void* to;
    const void* from;
    int bytes;
  };
  Barrier phase;
  int n_arrivals = 0, arrived = 0, n_waiting = 0;
  std::vector<BulkCopy> copies;  // of the phase
};

struct Thread {
  boost::context::fiber fiber;
  int index = 0;
  bool done = false;
  const Barrier* waits_for = nullptr;
  unsigned generation = 0;  // of waits_for, that has to end
  const char* at = "";      // what it waits in
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copy_groups;  // committed, oldest first
};

// Runs every block of a grid, one after the other.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel);

// For the instructions, which run in a fiber.
Thread& this_thread();
WarpExchange& this_warp();
int block_threads();
std::byte* dynamic_shared_memory();
// Returns once `barrier` has left `generation`.
void wait_for(const Barrier& barrier, unsigned generation, const char* instruction);
void barrier_sync(int id, int n_threads, const char* instruction);
void barrier_arrive(int id, int n_threads);

// Barriers in shared memory (PTX: mbarrier), known by their address. A phase ends with the last of
// n_arrivals; copies land when somebody waits for them and no earlier.
void phase_init(const void* barrier, int n_arrivals);
void phase_arrive(const void* barrier);
void phase_copy(const void* barrier, void* to, const void* from, int bytes);
// The phase's copies are all under way: they arrive when a thread waits for them, or now if one
// does.
void phase_copied(const void* barrier);
void phase_wait(const void* barrier, unsigned parity);
// Whether phase_wait would return at once; else the others have a turn first.
bool phase_test(const void* barrier, unsigned parity);

void copy_async(void* to, const void* from, bool inside);
void commit_copies();
void wait_for_copies(int n_pending);

}  // namespace fathom::emulator

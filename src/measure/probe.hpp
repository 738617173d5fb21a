// SPDX-License-Identifier: Apache-2.0
// Variants of one op beside each other: the class of their bits against the first, and their times
// with operands that stay in the last-level cache (hot) and with operands that have left it (cold),
// in randomised rounds.
//   hot    one set of operands again and again
//   cold   each set once, of as many sets as there is room for, after other bytes of three caches
//          were read: between two visits of a byte lie at least these
// Where the device has a queue, a sample is the difference of two graphs of launches over the
// difference of their lengths, so that what a graph costs by itself is left out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "device/trace.hpp"
#include "measure/bitwise.hpp"
#include "measure/freedom_map.hpp"
#include "measure/probe_op.hpp"
#include "measure/rounds.hpp"
#include "measure/verbatim.hpp"

namespace fathom::measure {

struct ProbeVariant {
  std::string name;
  Knobs knobs;
  OpTable ops;
  const CpuKernels* cpu = nullptr;
  ThreadPool* pool = nullptr;
};

enum class ProbeMemory { hot, cold };
const char* probe_memory_name(ProbeMemory memory);

struct ProbeOptions {
  int n_rounds = 10;
  uint64_t seed = 1;
  std::vector<ProbeMemory> memories{ProbeMemory::hot, ProbeMemory::cold};
  int64_t cache_bytes = 0;   // last level
  int64_t budget_bytes = 0;  // for all sets
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(double)> progress;
};

// Evidence of each variant at one size.
std::vector<BitEvidence> probe_bits(const std::string& op, const ProbeInput& input,
                                    const std::vector<ProbeVariant>& variants,
                                    const ProbeDevice& device);

struct ProbeArm {
  int variant = 0;
  bool again = false;  // the first variant once more: what noise looks like
  ProbeMemory memory{};
};

// How cold the cold operands were, and whether the hot ones fit.
struct ProbeRotation {
  int n_sets = 0;
  int64_t set_bytes = 0;
  int64_t distinct_bytes = 0;  // read between two visits of a byte
  int64_t cache_bytes = 0;
  bool is_cold() const { return distinct_bytes >= 3 * cache_bytes; }
  bool is_hot() const { return 2 * set_bytes <= cache_bytes; }
};

struct ProbeTimes {
  Cost cost;
  ProbeRotation rotation;
  int hot_launches = 0, cold_launches = 0;  // of a sample's longer run
  std::vector<ProbeArm> arms;
  Rounds rounds;                                   // microseconds a launch, in the arms' order
  std::vector<double> memory_gbps, cached_gbps;    // ceilings, a sample a round; empty = none
  std::vector<std::vector<KernelLaunch>> kernels;  // of each variant; empty on a host
  // The same as nodes of graphs, with their arguments; empty where there are none.
  std::vector<ProbedCall> nodes;

  std::span<const double> us(int variant, ProbeMemory memory, bool again = false) const;
};

// The read ceilings of the device, between the same rounds; either may be empty.
struct ProbeCeilings {
  std::function<double()> memory, cached;
};

ProbeTimes probe_times(const std::string& op, const ProbeInput& input,
                       const std::vector<ProbeVariant>& variants, const ProbeDevice& device,
                       const ProbeCeilings& ceilings, const ProbeOptions& options);

// What each kernel of a call takes while they run behind one another, from the device's own records
// of a captured chain of calls: exclusive time, so that it counts once where kernels overlap.
struct KernelTimes {
  std::string kernel;
  std::vector<double> us;  // of every call
};
struct CallTimes {
  int variant = 0;
  ProbeMemory memory{};
  std::vector<KernelTimes> kernels;  // in the order of their launches
};
// REQUIRES: a device with graphs, and its source, made before the device was used. Throws
// Error{untrusted} when records are lost.
std::vector<CallTimes> probe_kernels(const std::string& op, const ProbeInput& input,
                                     const std::vector<ProbeVariant>& variants,
                                     const ProbeDevice& device, TraceSource& source,
                                     const ProbeOptions& options);
// The same from the steps of windows whose calls are the layers of `op`.
std::vector<KernelTimes> kernel_times(const std::vector<TraceWindow>& windows);

}  // namespace fathom::measure

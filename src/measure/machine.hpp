// SPDX-License-Identifier: Apache-2.0
// What this machine is, from /proc, /sys, cpuid and the GPU driver's management library: recorded
// with every result and shown by `doctor`. Nothing here needs rights or changes anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fathom::measure {

struct Gpu {
  std::string name;
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
  int sm_clock_mhz = 0;  // 0 = not readable
};

struct Machine {
  std::string cpu;                // model name
  std::vector<std::string> isas;  // of "scalar", "avx2", "avx512", those that Fathom can use here
  int logical_cpus = 0;
  int usable_cpus = 0;  // affinity mask and cgroup quota
  std::optional<double> cgroup_cpus;
  std::optional<double> cpu_mhz;  // mean of what /proc/cpuinfo says now
  bool virtual_machine = false;
  int64_t llc_bytes = 0;
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;
  std::optional<int64_t> cgroup_memory_bytes;
  std::string huge_pages;  // "always", "madvise", "never", or empty when not readable
  std::string kernel;
  std::string counters;     // empty = hardware counters can be read, else why not
  std::string gpu_driver;   // version, or empty
  std::string gpu_problem;  // why no GPU is listed; empty when one is
  std::vector<Gpu> gpus;

  const std::string& best_isa() const { return isas.back(); }
  // Equal for machines on which a measured bandwidth can be reused.
  std::string key() const;
};

Machine inspect_machine();

// What errno of perf_event_open(2) means for Machine::counters.
std::string counters_problem(int error);

}  // namespace fathom::measure

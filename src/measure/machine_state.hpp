// SPDX-License-Identifier: Apache-2.0
// What a machine is doing at one moment, read before and after a measurement and around each of its
// samples: clocks, temperature, who else runs, what the hypervisor took. Nothing is changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/nvml.hpp"
#include "measure/rounds.hpp"

namespace fathom::measure {

struct CpuState {
  std::optional<double> clock_mhz;            // of this core, measured (core_clock.hpp)
  std::optional<double> governor_mhz;         // what the kernel's frequency driver says of CPU 0
  std::optional<double> load;                 // runnable tasks, mean of the last minute
  std::optional<int64_t> running;             // tasks that run or wait now
  std::optional<int64_t> steal_ns;            // taken by the hypervisor since boot, all CPUs
  std::optional<int64_t> busy_ns;             // of all CPUs since boot
  std::optional<double> pressure_pct;         // of the last 10 s some task waited for a CPU
  std::optional<int64_t> pressure_ns;         // the same since boot
  std::optional<double> memory_pressure_pct;  // or for memory
  std::optional<double> temperature_c;        // of the first thermal zone
};

struct MachineState {
  CpuState cpu;
  std::vector<GpuState> gpus;
};

// From <root>/proc and <root>/sys; the clock is measured only of the machine itself (root empty).
CpuState read_cpu_state(const std::string& root = "");
MachineState read_machine_state(const Nvml& nvml);

// What each sample is asked of: the clock of the GPU at this place of Nvml::read(), or of the core.
SampleState sample_state(const Nvml& nvml, std::optional<size_t> gpu);

}  // namespace fathom::measure

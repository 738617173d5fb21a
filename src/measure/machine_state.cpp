// SPDX-License-Identifier: Apache-2.0
// Readers of /proc and /sys that take what they find; what is missing or not a number stays empty.
#include "measure/machine_state.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "measure/core_clock.hpp"

namespace fathom::measure {
namespace {

std::optional<double> first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return {};
  return value;
}

// "cpu  user nice system idle iowait irq softirq steal guest guest_nice", in ticks.
void read_stat(const std::string& path, CpuState& cpu) {
  std::ifstream file(path);
  std::string name;
  constexpr int kIdle = 3, kWait = 4, kSteal = 7;
  int64_t ticks[8] = {};
  if (!(file >> name) || name != "cpu") return;
  for (int64_t& tick : ticks) {
    if (!(file >> tick)) return;
  }
  const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  int64_t busy = 0;
  for (int i = 0; i < kSteal; ++i) busy += i == kIdle || i == kWait ? 0 : ticks[i];
  cpu.busy_ns = busy * tick_ns;
  cpu.steal_ns = ticks[kSteal] * tick_ns;
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", the last in microseconds.
void read_pressure(const std::string& path, std::optional<double>& pct,
                   std::optional<int64_t>* total_ns) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word) || word != "some") return;
  while (file >> word && word != "full") {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return;
    std::istringstream value(word.substr(equals + 1));
    const std::string name = word.substr(0, equals);
    double number = 0;
    if (!(value >> number)) return;
    if (name == "avg10") pct = number;
    if (name == "total" && total_ns) *total_ns = static_cast<int64_t>(number) * 1000;
  }
}

// "0.20 0.18 0.12 1/80 11206"
void read_load(const std::string& path, CpuState& cpu) {
  std::ifstream file(path);
  double one = 0, five = 0, fifteen = 0;
  int64_t running = 0;
  if (!(file >> one)) return;
  cpu.load = one;
  if (file >> five >> fifteen >> running) cpu.running = running;
}

}  // namespace

CpuState read_cpu_state(const std::string& root) {
  CpuState cpu;
  if (root.empty()) cpu.clock_mhz = core_clock_mhz();
  if (const auto khz =
          first_number(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")) {
    cpu.governor_mhz = *khz * 1e-3;
  }
  read_load(root + "/proc/loadavg", cpu);
  read_stat(root + "/proc/stat", cpu);
  read_pressure(root + "/proc/pressure/cpu", cpu.pressure_pct, &cpu.pressure_ns);
  read_pressure(root + "/proc/pressure/memory", cpu.memory_pressure_pct, nullptr);
  if (const auto millidegrees = first_number(root + "/sys/class/thermal/thermal_zone0/temp")) {
    cpu.temperature_c = *millidegrees * 1e-3;
  }
  return cpu;
}

MachineState read_machine_state(const Nvml& nvml) { return {read_cpu_state(), nvml.read()}; }

SampleState sample_state(const Nvml& nvml, std::optional<size_t> gpu) {
  SampleState state;
  CpuState cpu;
  read_stat("/proc/stat", cpu);
  std::optional<double> recent;
  read_pressure("/proc/pressure/cpu", recent, &cpu.pressure_ns);
  state.steal_ns = cpu.steal_ns;
  state.pressure_ns = cpu.pressure_ns;
  if (!gpu) {
    state.clock_mhz = core_clock_mhz();
    return state;
  }
  if (const auto mhz = nvml.sm_clock_mhz(*gpu)) state.clock_mhz = *mhz;
  if (const auto bits = nvml.throttle_bits(*gpu)) state.throttle_bits = *bits & kThrottleBits;
  return state;
}

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// The readers of /proc, /sys and control groups; what there is of GPUs comes from nvml.hpp.
#include "measure/machine.hpp"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/cpu_features.hpp"
#include "base/thread_pool.hpp"
#include "measure/nvml.hpp"
#include "measure/read_bandwidth.hpp"

namespace fathom::measure {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void read_cpuinfo(Machine& m) {
  std::ifstream file("/proc/cpuinfo");
  double mhz = 0;
  int n_mhz = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (m.cpu.empty() && line.starts_with("model name")) m.cpu = value;
    if (line.starts_with("flags") && value.find("hypervisor") != std::string::npos) {
      m.virtual_machine = true;
    }
    if (line.starts_with("cpu MHz")) {
      mhz += std::strtod(value.c_str(), nullptr);
      ++n_mhz;
    }
  }
  if (m.cpu.empty()) m.cpu = "unknown CPU";
  if (n_mhz > 0) m.cpu_mhz = mhz / n_mhz;
}

void read_meminfo(Machine& m) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    if (!(in >> name >> kib)) continue;
    if (name == "MemTotal:") m.memory_bytes = kib * 1024;
    if (name == "MemAvailable:") m.available_bytes = kib * 1024;
  }
}

void read_cgroup(Machine& m) {
  std::istringstream cpu(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0, period = 0;
  if (cpu >> quota >> period && period > 0) m.cgroup_cpus = quota / period;
  const std::string memory = first_line("/sys/fs/cgroup/memory.max");
  if (!memory.empty() && memory != "max") {
    m.cgroup_memory_bytes = std::strtoll(memory.c_str(), nullptr, 10);
  }
}

// The word in brackets: "always [madvise] never".
std::string huge_page_mode() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

// From the plainest to the best.
std::vector<std::string> usable_isas() {
  std::vector<std::string> isas;
  for (const CpuIsa& isa : cpu_isas()) {
    if (isa.usable) isas.insert(isas.begin(), isa.name);
  }
  return isas;
}

std::string try_counters() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = PERF_COUNT_HW_CPU_CYCLES;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  const long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
  if (fd < 0) return counters_problem(errno);
  close(static_cast<int>(fd));
  return "";
}

void read_gpus(Machine& m) {
  const Nvml nvml;
  m.gpu_problem = nvml.problem();
  m.gpu_driver = nvml.driver_version();
  for (const GpuState& gpu : nvml.read()) {
    m.gpus.push_back({gpu.name, gpu.total_bytes, gpu.used_bytes, gpu.sm_clock_mhz.value_or(0)});
  }
}

}  // namespace

std::string Machine::key() const {
  return fmt::format("{} / {} of {} CPUs / {} / {} GiB", cpu, usable_cpus, logical_cpus, best_isa(),
                     (memory_bytes + (int64_t{1} << 29)) >> 30);
}

std::string counters_problem(int error) {
  if (error == EACCES || error == EPERM) {
    return fmt::format("not permitted (kernel.perf_event_paranoid is {}, 2 or less is needed)",
                       first_line("/proc/sys/kernel/perf_event_paranoid"));
  }
  return fmt::format("this machine shows no hardware counters ({})", std::strerror(error));
}

Machine inspect_machine() {
  Machine m;
  read_cpuinfo(m);
  m.isas = usable_isas();
  m.logical_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  m.usable_cpus = ThreadPool::usable_cpus();
  m.llc_bytes = last_level_cache_bytes();
  read_meminfo(m);
  read_cgroup(m);
  m.huge_pages = huge_page_mode();
  utsname names{};
  if (uname(&names) == 0) m.kernel = fmt::format("{} {}", names.sysname, names.release);
  m.counters = try_counters();
  read_gpus(m);
  return m;
}

}  // namespace fathom::measure

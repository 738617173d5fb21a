// SPDX-License-Identifier: Apache-2.0
// Memory by mmap or aligned allocation, the free memory within the limits of control groups and of
// the address space, and events on the monotonic clock.
#include "device/host_device.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"

namespace fathom {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number after `key` in a file of "key value" lines; `missing` when there is none.
int64_t read_keyed(const std::string& path, const std::string& key, int64_t missing) {
  std::ifstream file(path);
  std::string word;
  int64_t value;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> word >> value && word == key) return value;
  }
  return missing;
}

int64_t read_number(const std::string& path, int64_t missing) {
  std::ifstream file(path);
  int64_t value;
  return file >> value ? value : missing;  // "max" is no number
}

// What is left under one control group's limit.
int64_t group_left(const std::string& folder, const char* limit_file, const char* usage_file) {
  const int64_t limit = read_number(folder + "/" + limit_file, kNoLimit);
  if (limit >= kNoLimit / 2) return kNoLimit;
  const int64_t used = read_number(folder + "/" + usage_file, 0);
  const int64_t cache = read_keyed(folder + "/memory.stat", "inactive_file", 0) +
                        read_keyed(folder + "/memory.stat", "active_file", 0);
  return std::max<int64_t>(0, limit - used + std::min(cache, used));
}

int64_t cgroup_left() {
  int64_t left =
      group_left("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      left = std::min(left, group_left("/sys/fs/cgroup" + path, "memory.max", "memory.current"));
      if (path.empty()) break;
    }
  }
  return left;
}

// What the process may still map under RLIMIT_AS (ulimit -v).
int64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= rlim_t{kNoLimit}) return kNoLimit;
  const int64_t mapped = read_number("/proc/self/statm", 0) * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - mapped);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

DeviceInfo info() {
  DeviceInfo out;
  out.name = cpu_name();
  out.compute_units = ThreadPool::usable_cpus();
  out.total_bytes = host_total_bytes();
  out.free_bytes = host_available_bytes();
  out.l2_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return out;
}

[[noreturn]] void out_of_memory(int64_t bytes) {
  fail(ErrorCode::out_of_memory,
       "cannot allocate {} MB: {} MB are available; use a smaller model or a smaller context (-c)",
       bytes >> 20, host_available_bytes() >> 20);
}

void* alloc(int64_t bytes) {
  FATHOM_CHECK(bytes > 0, "an allocation needs at least one byte");
  if (bytes < kHugePage) {
    void* small = std::aligned_alloc(64, round_up(bytes, 64));
    if (!small) out_of_memory(bytes);
    return small;
  }
  // Mapped with room to spare, then trimmed to a huge-page boundary.
  const size_t length = round_up(bytes, kHugePage);
  void* mapped = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) out_of_memory(bytes);
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = round_up(start, kHugePage);
  if (aligned > start) munmap(mapped, aligned - start);
  const uintptr_t end = aligned + length;
  const uintptr_t mapped_end = start + length + kHugePage;
  if (mapped_end > end) munmap(reinterpret_cast<void*>(end), mapped_end - end);
  void* out = reinterpret_cast<void*>(aligned);
  madvise(out, length, MADV_HUGEPAGE);  // advice only: a system without huge pages still works
  return out;
}

void release(void* data, int64_t bytes) {
  if (!data) return;
  if (bytes < kHugePage) {
    std::free(data);
  } else {
    munmap(data, round_up(bytes, kHugePage));
  }
}

void copy(void* to, const void* from, int64_t bytes, void*) { std::memcpy(to, from, bytes); }

using Clock = std::chrono::steady_clock;

double elapsed_us(void* start, void* stop) {
  return std::chrono::duration<double, std::micro>(*static_cast<Clock::time_point*>(stop) -
                                                   *static_cast<Clock::time_point*>(start))
      .count();
}

[[noreturn]] void no_graphs() {
  fail(ErrorCode::unsupported, "the host device has no graphs: run the step itself");
}

constexpr DeviceApi kHostDevice{
    .shares_host_memory = true,
    .info = info,
    .alloc = alloc,
    .free = release,
    .alloc_host = alloc,
    .free_host = release,
    .copy_to_device = copy,
    .copy_to_host = copy,
    .stream_create = []() -> void* { return nullptr; },
    .stream_destroy = [](void*) {},
    .stream_synchronize = [](void*) {},
    .event_create = []() -> void* { return new Clock::time_point; },
    .event_destroy = [](void* event) { delete static_cast<Clock::time_point*>(event); },
    .event_record = [](void* event,
                       void*) { *static_cast<Clock::time_point*>(event) = Clock::now(); },
    .event_synchronize = [](void*) {},
    .event_elapsed_us = elapsed_us,
    .capture_begin = [](void*) { no_graphs(); },
    .capture_end = [](void*) -> void* { no_graphs(); },
    .graph_launch = [](void*, void*) { no_graphs(); },
    .graph_destroy = [](void*) {},
};

}  // namespace

const DeviceApi& host_device() { return kHostDevice; }

int64_t host_total_bytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int64_t host_available_bytes() {
  const int64_t available = read_keyed("/proc/meminfo", "MemAvailable:", kNoLimit / 1024) * 1024;
  return std::min({available, cgroup_left(), address_space_left(), host_total_bytes()});
}

}  // namespace fathom

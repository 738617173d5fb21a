// SPDX-License-Identifier: Apache-2.0
// The buffer on huge pages, the threads' passes over it, and the choice of the fastest variant.
#include "measure/read_bandwidth.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/checked.hpp"
#include "base/cpu_features.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "measure/clock.hpp"
#include "measure/read_stream.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMinBuffer = int64_t{128} << 20;
constexpr int64_t kMaxBuffer = int64_t{1} << 30;

const ReadStreamTable& best_table() {
  for (const ReadStreamTable* table : {&kReadStreamAvx512, &kReadStreamAvx2}) {
    if (cpu_isa_usable(table->isa)) return *table;
  }
  return kReadStreamScalar;
}

int64_t free_memory_bytes() { return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int64_t default_buffer_bytes() {
  const int64_t wanted = std::clamp(8 * last_level_cache_bytes(), kMinBuffer, kMaxBuffer);
  return std::max(kMinBuffer, std::min(wanted, free_memory_bytes() / 4));
}

}  // namespace

int64_t last_level_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    int64_t kib = 0;
    if (file >> kib) largest = std::max(largest, kib * 1024);
  }
  return largest > 0 ? largest : int64_t{32} << 20;
}

int64_t beyond_cache_bytes() {
  return std::clamp<int64_t>(3 * last_level_cache_bytes(), kMinBuffer, kMaxBuffer);
}

ReadBandwidth::ReadBandwidth(const ReadBandwidthOptions& options)
    : pool_(std::make_unique<ThreadPool>(ThreadPool::choose_threads(options.threads))) {
  buffer_bytes_ = static_cast<int64_t>(
      round_up(static_cast<uint64_t>(options.buffer_bytes > 0 ? options.buffer_bytes
                                                              : default_buffer_bytes()),
               static_cast<uint64_t>(kHugePage)));
  // At least 16 pieces a thread, so that a core that is taken away for a while holds up nobody.
  piece_bytes_ = std::clamp(buffer_bytes_ / (int64_t{16} * pool_->size()) / kHugePage * kHugePage,
                            kHugePage, 8 * kHugePage);

  void* mapped = mmap(nullptr, static_cast<size_t>(buffer_bytes_ + kHugePage),
                      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, "no {} MiB of memory for the bandwidth buffer",
         buffer_bytes_ >> 20);
  }
  // The mapping is one huge page longer than the buffer; its ends are given back so that the
  // destructor needs the aligned pointer alone.
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = round_up(start, static_cast<uint64_t>(kHugePage));
  const uintptr_t end = start + static_cast<uintptr_t>(buffer_bytes_ + kHugePage);
  const uintptr_t aligned_end = aligned + static_cast<uintptr_t>(buffer_bytes_);
  if (aligned > start) munmap(mapped, aligned - start);
  if (end > aligned_end) munmap(reinterpret_cast<void*>(aligned_end), end - aligned_end);
  data_ = reinterpret_cast<std::byte*>(aligned);
  madvise(data_, static_cast<size_t>(buffer_bytes_), MADV_HUGEPAGE);

  Chunks chunks(buffer_bytes_, piece_bytes_);  // first touch by the threads that will read
  pool_->run([&](Team&) {
    for (int64_t begin, stop; chunks.next(begin, stop);) {
      std::memset(data_ + begin, 0x5a, static_cast<size_t>(stop - begin));
    }
  });

  double best = std::numeric_limits<double>::max();
  for (int pass = 0; pass < 3; ++pass) {
    for (int variant = 0; variant < kStreamVariants; ++variant) {
      const double seconds = pass_seconds(variant);
      if (pass > 0 && seconds < best) {
        best = seconds;
        variant_ = variant;
      }
    }
  }
}

ReadBandwidth::~ReadBandwidth() {
  if (data_) munmap(data_, static_cast<size_t>(buffer_bytes_));
}

double ReadBandwidth::pass_seconds(int variant) {
  const ReadStream read = best_table().variants[variant];
  std::atomic<uint64_t> sum{0};
  Chunks chunks(buffer_bytes_, piece_bytes_);
  const int64_t start = now_ns();
  pool_->run([&](Team&) {
    uint64_t mine = 0;
    for (int64_t begin, stop; chunks.next(begin, stop);) mine += read(data_ + begin, stop - begin);
    sum.fetch_add(mine, std::memory_order_relaxed);
  });
  const int64_t elapsed = now_ns() - start;
  sum_ += sum.load();
  return static_cast<double>(elapsed) * 1e-9;
}

double ReadBandwidth::sample_gbps(double seconds) {
  double elapsed = 0;
  int64_t bytes = 0;
  do {
    elapsed += pass_seconds(variant_);
    bytes += buffer_bytes_;
  } while (elapsed < seconds);
  return static_cast<double>(bytes) / elapsed * 1e-9;
}

int ReadBandwidth::threads() const { return pool_->size(); }
int ReadBandwidth::streams() const { return kStreamCounts[variant_]; }
const char* ReadBandwidth::isa() const { return best_table().isa; }

int64_t ReadBandwidth::huge_page_bytes() const {
  std::ifstream maps("/proc/self/smaps");
  const uintptr_t data = reinterpret_cast<uintptr_t>(data_);
  std::string line;
  for (bool inside = false; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      inside = data >= begin && data < end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kib) == 1) {
      return static_cast<int64_t>(kib) * 1024;
    }
  }
  return -1;
}

}  // namespace fathom::measure

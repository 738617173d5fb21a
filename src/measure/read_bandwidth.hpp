// SPDX-License-Identifier: Apache-2.0
// The read ceiling of this machine: how fast `threads` threads stream a buffer far larger than the
// last-level cache, on huge pages where the system gives them. Short samples, so that they can
// interleave with the rounds of a measurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fathom {
class ThreadPool;
}

namespace fathom::measure {

struct ReadBandwidthOptions {
  int threads = 0;           // 0 = the cores this process may use
  int64_t buffer_bytes = 0;  // 0 = 8 x last-level cache, within 128 MiB .. 1 GiB and free memory
};

class ReadBandwidth {
 public:
  // Fills the buffer and finds the best stream count; takes about half a second.
  explicit ReadBandwidth(const ReadBandwidthOptions& options = {});
  ~ReadBandwidth();

  // Whole passes over the buffer for at least `seconds`; GB/s (10^9 bytes).
  double sample_gbps(double seconds = 0.2);

  int threads() const;
  int64_t buffer_bytes() const { return buffer_bytes_; }
  int streams() const;  // read side by side by each thread
  const char* isa() const;
  // Bytes of the buffer that stand on huge pages; -1 when the system does not say.
  int64_t huge_page_bytes() const;

 private:
  double pass_seconds(int variant);

  std::unique_ptr<ThreadPool> pool_;
  std::byte* data_ = nullptr;
  int64_t buffer_bytes_ = 0;
  int64_t piece_bytes_ = 0;
  int variant_ = 0;
  uint64_t sum_ = 0;  // keeps the loads alive
};

// The size of the largest data cache that CPU 0 reports, or 32 MiB when it reports none.
int64_t last_level_cache_bytes();
// Three times that, 128 MiB to 1 GiB: what a benchmark walks through to read memory, not caches.
int64_t beyond_cache_bytes();

}  // namespace fathom::measure

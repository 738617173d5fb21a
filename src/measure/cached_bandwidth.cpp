// SPDX-License-Identifier: Apache-2.0
// One launch of many passes, so that its start is a small part; the sum checked.
#include "measure/cached_bandwidth.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr int kPasses = 200;
constexpr int64_t kLeastBytes = int64_t{1} << 20;

}  // namespace

CachedBandwidth::CachedBandwidth(const DeviceApi& device)
    : device_(device),
      stream_(make_stream(device)),
      start_(make_event(device)),
      stop_(make_event(device)),
      buffer_(make_buffer(device, std::max(kLeastBytes, device.info().l2_bytes / 4 / 64 * 64))),
      sum_(make_buffer(device, sizeof(uint64_t))) {
  FATHOM_CHECK(device.read_cached != nullptr, "this device does not read cached bytes");
  Random random(1);
  std::vector<uint64_t> words(static_cast<size_t>(buffer_bytes() / 8));
  for (uint64_t& word : words) expected_ += word = random.next();
  device_.copy_to_device(buffer_.get().data, words.data(), buffer_bytes(), stream_.get());
  device_.stream_synchronize(stream_.get());
  sample_gbps();  // loads the kernel and fills the cache
}

double CachedBandwidth::sample_gbps() {
  auto* const sum = reinterpret_cast<uint64_t*>(sum_.get().data);
  uint64_t got = 0;
  device_.copy_to_device(sum, &got, sizeof got, stream_.get());
  device_.read_cached(buffer_.get().data, buffer_bytes(), 2, sum, stream_.get());  // into the cache
  device_.event_record(start_.get(), stream_.get());
  device_.read_cached(buffer_.get().data, buffer_bytes(), kPasses, sum, stream_.get());
  device_.event_record(stop_.get(), stream_.get());
  device_.copy_to_host(&got, sum, sizeof got, stream_.get());
  device_.stream_synchronize(stream_.get());
  if (got != (kPasses + 2) * expected_) {
    fail(ErrorCode::internal, "the cached reads' sum is {:x}, expected {:x}", got,
         (kPasses + 2) * expected_);
  }
  const double us = device_.event_elapsed_us(start_.get(), stop_.get());
  return static_cast<double>(buffer_bytes()) * kPasses / us * 1e-3;
}

}  // namespace fathom::measure

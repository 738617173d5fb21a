// SPDX-License-Identifier: Apache-2.0
// Random words in the buffer, since a memory may be faster on zeros; passes between two events; the
// sum of the words checked after every sample.
#include "measure/device_bandwidth.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kLargestBuffer = int64_t{4} << 30;
constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr int64_t kVectorBytes = 16;

int64_t choose_bytes(const DeviceApi& device, int64_t wanted) {
  const int64_t bytes =
      wanted > 0 ? wanted : std::min(kLargestBuffer, device.info().free_bytes / 16);
  return std::max(kVectorBytes, bytes / kVectorBytes * kVectorBytes);
}

}  // namespace

DeviceBandwidth::DeviceBandwidth(const DeviceApi& device, int64_t buffer_bytes)
    : device_(device),
      stream_(make_stream(device)),
      start_(make_event(device)),
      stop_(make_event(device)),
      buffer_(make_buffer(device, choose_bytes(device, buffer_bytes))),
      sum_(make_buffer(device, sizeof(uint64_t))),
      host_sum_(make_host_buffer(device, sizeof(uint64_t))) {
  FATHOM_CHECK(device.read_stream != nullptr, "this device has no read stream");
  Random random(1);
  std::vector<uint64_t> words(static_cast<size_t>(std::min(kPieceBytes, this->buffer_bytes()) / 8));
  for (uint64_t& word : words) word = random.next();
  for (int64_t at = 0; at < this->buffer_bytes(); at += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, this->buffer_bytes() - at);
    device_.copy_to_device(buffer_.get().data + at, words.data(), bytes, stream_.get());
    for (int64_t i = 0; i < bytes / 8; ++i) expected_ += words[static_cast<size_t>(i)];
  }
  pass_us_ = passes_us(1);
}

// Microseconds of n passes.
double DeviceBandwidth::passes_us(int64_t n) {
  auto* const sum = reinterpret_cast<uint64_t*>(sum_.get().data);
  auto* const host_sum = reinterpret_cast<uint64_t*>(host_sum_.get().data);
  *host_sum = 0;
  device_.copy_to_device(sum, host_sum, sizeof(uint64_t), stream_.get());
  device_.event_record(start_.get(), stream_.get());
  for (int64_t i = 0; i < n; ++i) {
    device_.read_stream(buffer_.get().data, buffer_bytes(), sum, stream_.get());
  }
  device_.event_record(stop_.get(), stream_.get());
  device_.copy_to_host(host_sum, sum, sizeof(uint64_t), stream_.get());
  device_.stream_synchronize(stream_.get());
  if (*host_sum != static_cast<uint64_t>(n) * expected_) {
    fail(ErrorCode::internal, "the read stream's sum is {:x}, expected {:x}", *host_sum,
         static_cast<uint64_t>(n) * expected_);
  }
  return device_.event_elapsed_us(start_.get(), stop_.get());
}

double DeviceBandwidth::sample_gbps(double seconds) {
  const int64_t n =
      std::clamp<int64_t>(static_cast<int64_t>(1e6 * seconds / std::max(pass_us_, 1.0)), 1, 1000);
  const double us = passes_us(n);
  pass_us_ = us / static_cast<double>(n);
  return static_cast<double>(buffer_bytes()) / pass_us_ * 1e-3;
}

}  // namespace fathom::measure

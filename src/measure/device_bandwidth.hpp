// SPDX-License-Identifier: Apache-2.0
// The read ceiling of a device with memory of its own: how fast its read stream passes over a
// buffer far larger than its cache. Short samples, so that they can interleave with the rounds of a
// measurement.
#pragma once

#include <cstdint>

#include "device/owned.hpp"

namespace fathom::measure {

class DeviceBandwidth {
 public:
  // Fills the buffer and reads it once. 0 bytes = 4 GiB, at most a sixteenth of what is free.
  // REQUIRES: the device has a read stream. Throws Error{unavailable, out_of_memory, device_fault}.
  explicit DeviceBandwidth(const DeviceApi& device, int64_t buffer_bytes = 0);

  // Whole passes over the buffer for about `seconds`, at least one; GB/s (10^9 bytes).
  // Error{internal} when the sum is not that of the bytes: then something else was timed than their
  // reading.
  double sample_gbps(double seconds = 0.05);

  int64_t buffer_bytes() const { return buffer_.get().bytes; }

 private:
  double passes_us(int64_t n);

  const DeviceApi& device_;
  Stream stream_;
  Event start_, stop_;
  Buffer buffer_, sum_;
  HostBuffer host_sum_;
  uint64_t expected_ = 0;  // sum of one pass
  double pass_us_ = 0;
};

}  // namespace fathom::measure

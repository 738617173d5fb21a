// SPDX-License-Identifier: Apache-2.0
// The read ceiling of a device's last-level cache: many passes over a buffer that fits there.
#pragma once

#include "device/owned.hpp"

namespace fathom::measure {

class CachedBandwidth {
 public:
  // Over a quarter of the cache. REQUIRES: the device reads cached bytes.
  explicit CachedBandwidth(const DeviceApi& device);
  // GB/s. Error{internal} when the sum is not that of the bytes.
  double sample_gbps();
  int64_t buffer_bytes() const { return buffer_.get().bytes; }

 private:
  const DeviceApi& device_;
  Stream stream_;
  Event start_, stop_;
  Buffer buffer_, sum_;
  uint64_t expected_ = 0;  // of a pass
};

}  // namespace fathom::measure

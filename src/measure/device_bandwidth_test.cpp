// SPDX-License-Identifier: Apache-2.0
// The rate comes from whole passes, and a read stream that leaves bytes out is found. The device is
// the host's memory with a read stream.
#include "measure/device_bandwidth.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/host_device.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kBytes = 40 << 20;  // not whole pieces of what fills it

template <int64_t kLeftOut>
void read_host(const void* data, int64_t bytes, uint64_t* sum, void*) {
  const auto* words = static_cast<const uint64_t*>(data);
  for (int64_t i = 0; i < (bytes - kLeftOut) / 8; ++i) *sum += words[i];
}

DeviceApi device_with(void (*read_stream)(const void*, int64_t, uint64_t*, void*)) {
  DeviceApi device = host_device();
  device.read_stream = read_stream;
  return device;
}

TEST(DeviceBandwidth, GivesAPlausibleRate) {
  const DeviceApi device = device_with(read_host<0>);
  DeviceBandwidth bandwidth(device, kBytes + 8);
  EXPECT_EQ(bandwidth.buffer_bytes(), kBytes) << "whole vectors of 16 bytes";
  const double gbps = bandwidth.sample_gbps(0.02);
  EXPECT_GT(gbps, 0.01);
  EXPECT_LT(gbps, 2000);
}

TEST(DeviceBandwidth, FindsAStreamThatLeavesBytesOut) {
  const DeviceApi device = device_with(read_host<16>);
  try {
    DeviceBandwidth bandwidth(device, kBytes);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
  }
}

}  // namespace
}  // namespace fathom::measure

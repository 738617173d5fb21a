// SPDX-License-Identifier: Apache-2.0
// The rate is that of the operations, and wrong results are found. The device is the host's memory
// with an arithmetic stream.
#include "measure/device_flops.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"
#include "device/host_device.hpp"

namespace fathom::measure {
namespace {

constexpr int64_t kThreads = 1024;

template <int64_t kWrong>
ArithmeticWork sleep_and_count(Arithmetic, int64_t, uint64_t* right, void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  *right += kThreads - kWrong;
  return {.ops = 2'000'000'000, .threads = kThreads};
}

DeviceApi device_with(decltype(DeviceApi::arithmetic_stream) stream) {
  DeviceApi device = host_device();
  device.arithmetic_stream = stream;
  return device;
}

TEST(DeviceFlops, IsOperationsOverTime) {
  const DeviceApi device = device_with(sleep_and_count<0>);
  const double gflops = DeviceFlops(device).sample_gflops(Arithmetic::f32);
  EXPECT_LE(gflops, 1000) << "2e9 operations in 2 ms at least";
  EXPECT_GT(gflops, 1);
}

TEST(DeviceFlops, RefusesWrongResults) {
  const DeviceApi device = device_with(sleep_and_count<1>);
  try {
    DeviceFlops(device).sample_gflops(Arithmetic::int8_tensor);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_THAT(error.what(), testing::HasSubstr("the int8 tensor stream"));
  }
}

}  // namespace
}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Host memory is aligned and writable, an impossible allocation is refused, and limits are known.
#include "device/host_device.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "device/owned.hpp"

namespace fathom {
namespace {

TEST(HostDevice, AllocationsAreAlignedAndWritable) {
  const DeviceApi& api = host_device();
  for (const int64_t bytes : {1ll, 63ll, 4097ll, (2ll << 20) - 1, 2ll << 20, (5ll << 20) + 3}) {
    void* data = api.alloc(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    if (bytes >= 2 << 20) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 << 20), 0u) << bytes;
    }
    std::memset(data, 7, bytes);
    api.free(data, bytes);
  }
}

TEST(HostDevice, RefusesWhatNoMachineHas) {
  try {
    host_device().alloc(int64_t{1} << 50);
    FAIL() << "a petabyte was allocated";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
  }
}

TEST(HostDevice, KnowsItsMemory) {
  const DeviceInfo info = host_device().info();
  EXPECT_GT(info.free_bytes, 16 << 20);
  EXPECT_LE(info.free_bytes, info.total_bytes);
  EXPECT_GE(info.compute_units, 1);
  EXPECT_FALSE(info.name.empty());
}

TEST(HostDevice, KnowsTheLimitOfTheAddressSpace) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  int64_t pages = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages);
  rlimit limited = before;
  limited.rlim_cur = static_cast<rlim_t>(pages * getpagesize() + (64 << 20));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const int64_t available = host_available_bytes();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(available, 64 << 20);
  EXPECT_GT(available, 32 << 20);
}

TEST(HostDevice, EventsMeasureTime) {
  const DeviceApi& api = host_device();
  const Event start = make_event(api), stop = make_event(api);
  api.event_record(start.get(), nullptr);
  api.event_record(stop.get(), nullptr);
  EXPECT_GE(api.event_elapsed_us(start.get(), stop.get()), 0.0);
}

}  // namespace
}  // namespace fathom

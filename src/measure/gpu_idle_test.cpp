// SPDX-License-Identifier: Apache-2.0
// Recorded drivers and canaries: each way in which a GPU is not idle is found, an idle one passes,
// and what is unknown proves nothing.
#include "measure/gpu_idle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "device/host_device.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

using testing::HasSubstr;

constexpr int64_t kOwnPid = 77;

GpuState idle_gpu() {
  GpuState gpu;
  gpu.name = "NVIDIA H200";
  gpu.total_bytes = int64_t{141} << 30;
  gpu.used_bytes = int64_t{500} << 20;
  gpu.utilisation_pct = 0;
  gpu.throttle_bits = 0x1;  // idle: no throttling
  gpu.processes.emplace();
  gpu.mig = false;
  gpu.vgpu = false;
  gpu.ecc_errors = 0;
  return gpu;
}

IdleVerdict verdict_of(const GpuState& gpu) {
  return judge_readings(std::vector<GpuState>{idle_gpu(), gpu, idle_gpu()}, kOwnPid);
}

TEST(GpuIdle, AnIdleGpuIsIdle) {
  const IdleVerdict verdict = verdict_of(idle_gpu());
  EXPECT_TRUE(verdict.idle) << verdict.why;
}

TEST(GpuIdle, OurOwnProcessIsNoOther) {
  GpuState gpu = idle_gpu();
  gpu.processes->push_back({kOwnPid, int64_t{1} << 30});
  EXPECT_TRUE(verdict_of(gpu).idle);
  gpu.processes->push_back({4242, int64_t{2'000'000'000}});
  const IdleVerdict verdict = verdict_of(gpu);
  EXPECT_FALSE(verdict.idle);
  EXPECT_THAT(verdict.why, HasSubstr("1 other process runs on it: pid 4242 (2000 MB)"));
}

// Catalogue 16: in a container the list may be empty while somebody else computes.
TEST(GpuIdle, AnEmptyProcessListIsNotEnough) {
  GpuState gpu = idle_gpu();
  gpu.used_bytes = int64_t{40} << 30;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("are taken, though no process is listed"));
  gpu = idle_gpu();
  gpu.utilisation_pct = 60;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("60 % busy"));
  EXPECT_FALSE(verdict_of(gpu).idle);
}

TEST(GpuIdle, WhatIsUnknownProvesNothing) {
  GpuState gpu = idle_gpu();
  gpu.processes.reset();
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("cannot prove it idle"));
  gpu = idle_gpu();
  gpu.utilisation_pct.reset();
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("cannot prove it idle"));
  gpu = idle_gpu();
  gpu.mig = true;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("MIG"));
  gpu = idle_gpu();
  gpu.vgpu = true;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("vGPU"));
  EXPECT_FALSE(judge_readings({}, kOwnPid).idle);
}

TEST(GpuIdle, AGpuThatIsNotWellIsNotIdle) {
  GpuState gpu = idle_gpu();
  gpu.ecc_errors = 3;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("could not be corrected"));
  gpu = idle_gpu();
  gpu.throttle_bits = 0x40 | 0x1;
  EXPECT_THAT(verdict_of(gpu).why, HasSubstr("hardware thermal slowdown"));
}

// Of programs that run one after the other, the next one must not be refused for the last one's
// end.
TEST(GpuIdle, AProcessThatIsJustEndingIsWaitedFor) {
  size_t taken = 0, waited = 0;
  const auto readings_with = [&](size_t busy_readings) {
    taken = waited = 0;
    return read_until_idle(
        [&] {
          GpuState gpu = idle_gpu();
          if (taken++ < busy_readings) gpu.utilisation_pct = 80;
          return gpu;
        },
        [&] { ++waited; }, kOwnPid);
  };
  EXPECT_TRUE(judge_readings(readings_with(0), kOwnPid).idle);
  EXPECT_EQ(taken, kIdleReadings);
  EXPECT_EQ(waited, kIdleReadings - 1);
  EXPECT_TRUE(judge_readings(readings_with(2), kOwnPid).idle);
  EXPECT_EQ(taken, 2 + kIdleReadings);
  EXPECT_FALSE(judge_readings(readings_with(100), kOwnPid).idle);
  EXPECT_EQ(taken, kMostReadings);
}

TEST(GpuIdle, TheGpuThatCudaTakes) {
  std::vector<GpuState> gpus(3, idle_gpu());
  gpus[2].uuid = "GPU-abc-def";
  EXPECT_EQ(first_visible_gpu(gpus, nullptr), 0u);
  EXPECT_EQ(first_visible_gpu(gpus, "1,0"), 1u);
  EXPECT_EQ(first_visible_gpu(gpus, "GPU-abc,0"), 2u);
  for (const char* none : {"", "3", "-1", "GPU-x", "MIG-1", "1x"}) {
    EXPECT_FALSE(first_visible_gpu(gpus, none).has_value()) << none;
  }
  EXPECT_FALSE(first_visible_gpu({}, nullptr).has_value());
}

// A kernel of 50 us with the jitter of an event's clock.
std::vector<double> quiet_canary() {
  Random random(1);
  std::vector<double> times;
  for (size_t i = 0; i < kCanaryRuns; ++i) {
    times.push_back(50 + 0.5 * static_cast<double>(random.below(3)));
  }
  return times;
}

TEST(GpuIdle, TheCanarySpreadsWhenSomebodyShares) {
  EXPECT_TRUE(judge_canary(quiet_canary()).idle) << judge_canary(quiet_canary()).why;
  std::vector<double> shared = quiet_canary();
  for (size_t i = 0; i < shared.size(); i += 3) shared[i] *= 1.4;
  EXPECT_THAT(judge_canary(shared).why, HasSubstr("varies by"));
  EXPECT_FALSE(judge_canary(shared).idle);
  std::vector<double> sliced = quiet_canary();
  sliced[120] = 2000;  // a time slice of somebody else's
  EXPECT_THAT(judge_canary(sliced).why, HasSubstr("times as long"));
  EXPECT_FALSE(judge_canary(sliced).idle);
  std::vector<double> short_one = quiet_canary();
  short_one.pop_back();
  EXPECT_FALSE(judge_canary(short_one).idle);
  EXPECT_FALSE(judge_canary(std::vector<double>(kCanaryRuns, 0.0)).idle);
}

template <int kNothing>
void read_host(const void* data, int64_t bytes, uint64_t* sum, void*) {
  const auto* words = static_cast<const uint64_t*>(data);
  for (int64_t i = 0; i < bytes / 8; ++i) *sum += words[i];
}

// With little memory left, so that the test takes none of this machine's.
DeviceInfo nearly_full() {
  DeviceInfo info = host_device().info();
  info.free_bytes = int64_t{128} << 20;
  return info;
}

TEST(GpuIdle, TheCanaryRunsOnADevice) {
  DeviceApi device = host_device();
  device.info = nearly_full;
  device.read_stream = read_host<0>;
  const std::vector<double> times = canary_times_us(device);
  ASSERT_EQ(times.size(), kCanaryRuns);
  EXPECT_GT(median(times), 10) << "long against a step of its clock";
}

// What the driver's library says, through the calls that a real one gets.
class FakeDriver : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("fake_nvml." + std::to_string(getpid()));
    setenv("FAKE_NVML", path_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("FAKE_NVML");
    std::filesystem::remove(path_);
  }
  GpuState read(const std::string& more = "") {
    std::ofstream(path_) << "name NVIDIA H200\nuuid GPU-12\ntotal 150000000000\nused 400000000\n"
                            "sm_clock 1980\nmax_sm_clock 1980\nmemory_clock 3201\ntemperature 41\n"
                            "power_mw 120500\nutilisation 0\nthrottle 1\n"
                         << more;
    const Nvml nvml(FATHOM_FAKE_NVML);
    EXPECT_EQ(nvml.problem(), "");
    EXPECT_EQ(nvml.sm_clock_mhz(0), 1980);
    EXPECT_FALSE(nvml.sm_clock_mhz(1).has_value());
    return nvml.read().at(0);
  }
  std::filesystem::path path_;
};

TEST_F(FakeDriver, AnIdleGpuIsReadAndJudged) {
  const GpuState gpu = read();
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.uuid, "GPU-12");
  EXPECT_EQ(gpu.used_bytes, 400'000'000);
  EXPECT_EQ(gpu.memory_clock_mhz, 3201);
  EXPECT_EQ(gpu.temperature_c, 41);
  EXPECT_EQ(gpu.power_w, 120);
  EXPECT_EQ(gpu.mig, false);
  EXPECT_EQ(gpu.vgpu, false);
  EXPECT_TRUE(judge_readings(std::vector{gpu}, kOwnPid).idle);
}

TEST_F(FakeDriver, MoreProcessesThanThereWasRoomFor) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "process " + std::to_string(5000 + i) + " -1\n";
  const GpuState gpu = read(many);
  ASSERT_TRUE(gpu.processes.has_value());
  EXPECT_EQ(gpu.processes->size(), 40u);
  EXPECT_FALSE(gpu.processes->front().used_bytes.has_value()) << "unknown is not 2^64 - 1";
  EXPECT_THAT(judge_readings(std::vector{gpu}, kOwnPid).why, HasSubstr("40 other processes run"));
}

TEST_F(FakeDriver, WhatItDoesNotSupportStaysEmpty) {
  const GpuState gpu = read(
      "without nvmlDeviceGetUtilizationRates\nwithout nvmlDeviceGetComputeRunningProcesses_v3\n"
      "without nvmlDeviceGetMigMode\nwithout nvmlDeviceGetTotalEccErrors\n");
  EXPECT_FALSE(gpu.utilisation_pct.has_value());
  EXPECT_FALSE(gpu.processes.has_value());
  EXPECT_EQ(gpu.mig, false) << "a GPU that cannot be cut is not cut";
  EXPECT_FALSE(gpu.ecc_errors.has_value());
  EXPECT_FALSE(judge_readings(std::vector{gpu}, kOwnPid).idle);
}

TEST_F(FakeDriver, NoDriverBehindTheLibrary) {
  std::filesystem::remove(path_);
  const Nvml nvml(FATHOM_FAKE_NVML);
  EXPECT_THAT(nvml.problem(), HasSubstr("no driver answers"));
  EXPECT_TRUE(nvml.read().empty());
  EXPECT_THAT(Nvml("libthere-is-none.so").problem(), HasSubstr("no NVIDIA driver"));
}

TEST(ThrottleBits, AnIdleClockIsNoThrottling) {
  EXPECT_EQ(throttle_text(0x1 | 0x2 | 0x100), "");
  EXPECT_EQ(throttle_text(0x4 | 0x20), "power cap, thermal slowdown");
}

}  // namespace
}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Recorded /proc and /sys, whole, with parts missing and with nonsense in them; and this machine.
#include "measure/machine_state.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "measure/core_clock.hpp"
#include "measure/limits.hpp"

namespace fathom::measure {
namespace {

class Recorded : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("fathom_proc." + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(Recorded, EverythingIsRead) {
  write("proc/stat", "cpu  100 5 20 9000 7 1 2 33 0 0\ncpu0 1 2 3\n");
  write("proc/loadavg", "1.25 0.50 0.10 3/120 4711\n");
  write(
      "proc/pressure/cpu",
      "some avg10=12.50 avg60=1.00 avg300=0.00 total=2500\nfull avg10=9.00 avg60=0.00 avg300=0.00 "
      "total=7\n");
  write("proc/pressure/memory", "some avg10=0.75 avg60=0.00 avg300=0.00 total=1\n");
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n");
  write("sys/class/thermal/thermal_zone0/temp", "47500\n");
  const CpuState cpu = read_cpu_state(root_);
  const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  EXPECT_EQ(cpu.steal_ns, 33 * tick_ns);
  EXPECT_EQ(cpu.busy_ns, (100 + 5 + 20 + 1 + 2) * tick_ns) << "neither idle nor waiting for disks";
  EXPECT_EQ(cpu.load, 1.25);
  EXPECT_EQ(cpu.running, 3);
  EXPECT_EQ(cpu.pressure_pct, 12.5);
  EXPECT_EQ(cpu.pressure_ns, 2'500'000);
  EXPECT_EQ(cpu.memory_pressure_pct, 0.75);
  EXPECT_EQ(cpu.governor_mhz, 2400);
  EXPECT_EQ(cpu.temperature_c, 47.5);
  EXPECT_FALSE(cpu.clock_mhz.has_value()) << "of another machine it cannot be measured";
}

TEST_F(Recorded, WhatIsMissingOrNonsenseIsEmptyNotZero) {
  write("proc/stat", "cpu  100 5 x\n");
  write("proc/pressure/cpu", "some avg10\n");
  const CpuState cpu = read_cpu_state(root_);
  EXPECT_FALSE(cpu.steal_ns.has_value());
  EXPECT_FALSE(cpu.load.has_value());
  EXPECT_FALSE(cpu.pressure_pct.has_value());
  EXPECT_FALSE(cpu.governor_mhz.has_value());
  EXPECT_FALSE(cpu.temperature_c.has_value());
}

TEST(CoreClock, IsOneThatACoreCanHave) {
  for (int i = 0; i < 5; ++i) {
    const double mhz = core_clock_mhz();
    EXPECT_GT(mhz, 300);
    EXPECT_LT(mhz, 8000);
  }
}

TEST(Limits, OperationsOfAChip) {
  // An H200: 132 SMs at 1.98 GHz finish some 2,140 int8 TOPS at the very most.
  EXPECT_NEAR(most_gops("sm_90", 132, 1980.0).value(), 2.14e6, 0.01e6);
  EXPECT_NEAR(most_gops("avx2", 2, 3000.0).value(), 768, 1);
  EXPECT_FALSE(most_gops("avx2", 2, {}).has_value());
  EXPECT_FALSE(most_gops("sm_42", 2, 1000.0).has_value());
}

// Catalogue 4: a rotation that touches less than three caches is not cold.
TEST(Limits, ColdNeedsThreeCaches) {
  constexpr int64_t kCache = 50 << 20;
  EXPECT_TRUE(proven_cold(3 * kCache, kCache));
  EXPECT_FALSE(proven_cold(3 * kCache - 1, kCache));
  EXPECT_FALSE(proven_cold(INT64_MAX, 0)) << "an unknown cache proves nothing";
}

}  // namespace
}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// What every machine has is found, and the key holds what read bandwidth depends on.
#include "measure/machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/cpu_features.hpp"

namespace fathom::measure {
namespace {

TEST(Machine, SaysWhatEveryMachineHas) {
  const Machine m = inspect_machine();
  EXPECT_FALSE(m.cpu.empty());
  EXPECT_FALSE(m.kernel.empty());
  ASSERT_FALSE(m.isas.empty());
  EXPECT_EQ(m.isas.front(), "scalar");
  for (const CpuIsa& isa : cpu_isas()) {
    EXPECT_EQ(std::count(m.isas.begin(), m.isas.end(), isa.name), isa.usable) << isa.name;
  }
  EXPECT_GE(m.usable_cpus, 1);
  EXPECT_LE(m.usable_cpus, m.logical_cpus);
  EXPECT_GT(m.memory_bytes, 0);
  EXPECT_GT(m.available_bytes, 0);
  EXPECT_LE(m.available_bytes, m.memory_bytes);
  EXPECT_EQ(m.gpus.empty(), !m.gpu_problem.empty()) << "a GPU or the reason for none";
}

TEST(Machine, KeyNamesWhatBandwidthDependsOn) {
  Machine m;
  m.cpu = "X";
  m.isas = {"scalar", "avx2"};
  m.usable_cpus = 2;
  m.logical_cpus = 4;
  m.memory_bytes = int64_t{24} << 30;
  EXPECT_EQ(m.key(), "X / 2 of 4 CPUs / avx2 / 24 GiB");
}

}  // namespace
}  // namespace fathom::measure

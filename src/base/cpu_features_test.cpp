// SPDX-License-Identifier: Apache-2.0
// The rule against what the kernel says of this CPU.
#include "base/cpu_features.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace fathom {
namespace {

std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(CpuFeatures, AgreeWithTheKernel) {
  const std::set<std::string> flags = kernel_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags on this machine";
  const auto has = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!flags.count(name)) return false;
    }
    return true;
  };
  const bool avx2 = has({"avx2", "fma", "bmi2", "f16c"});
  EXPECT_EQ(cpu_isa_usable("avx2"), avx2);
  EXPECT_EQ(cpu_isa_usable("avx512"), avx2 && has({"avx512f", "avx512bw", "avx512dq", "avx512vl",
                                                   "avx512_vnni", "avx512vbmi"}));
}

TEST(CpuFeatures, EndWithTheSetThatAlwaysWorks) {
  ASSERT_FALSE(cpu_isas().empty());
  EXPECT_STREQ(cpu_isas().back().name, "scalar");
  EXPECT_TRUE(cpu_isa_usable("scalar"));
  EXPECT_FALSE(cpu_isa_usable("mmx"));
}

}  // namespace
}  // namespace fathom

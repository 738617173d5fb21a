// SPDX-License-Identifier: Apache-2.0
// The generated build information has the form that results and `--version` rely on.
#include "base/build_info.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace fathom {
namespace {

TEST(BuildInfo, NamesVersionCommitAndCompiler) {
  const BuildInfo& info = build_info();
  EXPECT_TRUE(std::regex_match(info.version, std::regex("\\d+\\.\\d+\\.\\d+"))) << info.version;
  EXPECT_TRUE(std::regex_match(info.commit, std::regex("unknown|[0-9a-f]{12,40}(-dirty)?")))
      << info.commit;
  EXPECT_TRUE(std::regex_match(info.compiler, std::regex("(GNU|Clang) \\d+\\..*")))
      << info.compiler;
  EXPECT_STRNE(info.build_type, "");
}

}  // namespace
}  // namespace fathom

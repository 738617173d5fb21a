// SPDX-License-Identifier: Apache-2.0
// Lines and producers of the fixture's kernels, without a GPU.
#include "backends/cuda/code_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int line_of(const std::string& mark) {
  std::ifstream source(FATHOM_SOURCE_DIR "/src/backends/cuda/sass_fixture.cu");
  std::string line;
  for (int n = 1; std::getline(source, line); ++n) {
    if (line.ends_with("// " + mark)) return n;
  }
  return -1;
}

class CodePlaces : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      api_ = &cupti();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    cubin_ = read_text(FATHOM_SASS_FIXTURES "/sass_" + std::string(GetParam()) + ".cubin");
    bytes_ = std::as_bytes(std::span(cubin_));
  }
  std::vector<SassInstruction> code(const std::string& kernel) {
    return Cubin(bytes_).code(kernel);
  }
  const Cupti* api_ = nullptr;
  std::string cubin_;
  std::span<const std::byte> bytes_;
};

TEST_P(CodePlaces, AStalledLineNamesTheLinesOfItsLoads) {
  const KernelCode kernel(*api_, bytes_, "two_loads");
  bool found = false;
  for (int64_t at = 0; at < static_cast<int64_t>(code("two_loads").size()) * kSassBytes;
       at += kSassBytes) {
    StalledPlace stalled;
    stalled.place = kernel.place(at);
    if (stalled.place.line != line_of("two_loads: consumer")) continue;
    kernel.find_producers_of(stalled);
    if (stalled.producers.size() != 2) continue;
    found = true;
    EXPECT_THAT(stalled.place.file, HasSubstr("sass_fixture.cu"));
    EXPECT_EQ(stalled.producers[0].line, line_of("two_loads: second"));
    EXPECT_EQ(stalled.producers[1].line, line_of("two_loads: first"));
    EXPECT_EQ(stalled.producers[0].instruction, "LDG");
    EXPECT_EQ(stalled.problem, "");
  }
  EXPECT_TRUE(found) << "no instruction of the consumer's line waits for both loads";
}

TEST_P(CodePlaces, WhatCannotBeReadSaysWhy) {
  StalledPlace stalled;
  KernelCode(*api_, bytes_, "missing").find_producers_of(stalled);
  EXPECT_THAT(stalled.problem, HasSubstr("no kernel missing"));
  stalled = {};
  KernelCode(*api_, bytes_, "two_loads").find_producers_of(stalled);
  EXPECT_THAT(stalled.problem, HasSubstr("no load sets a barrier"));
  std::string later = cubin_;
  later[49] = static_cast<char>(130);
  stalled = {};
  KernelCode(*api_, std::as_bytes(std::span(later)), "two_loads").find_producers_of(stalled);
  EXPECT_THAT(stalled.problem, HasSubstr("unknown encoding"));
  EXPECT_THAT(stalled.producers, SizeIs(0));
}

INSTANTIATE_TEST_SUITE_P(Architectures, CodePlaces, testing::Values(FATHOM_SASS_ARCHITECTURES),
                         [](const auto& test) { return "sm_" + std::string(test.param); });

}  // namespace
}  // namespace fathom::cuda

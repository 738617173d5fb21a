// SPDX-License-Identifier: Apache-2.0
// The decoder against code compiled for each architecture (sass_fixture.cu), without a GPU.
#include "backends/cuda/sass.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::bad_file, "no {}: this test runs where it was built", path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::byte* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

class Sass : public testing::TestWithParam<const char*> {
 protected:
  Sass()
      : file_(read_file(FATHOM_SASS_FIXTURES "/sass_" + std::string(GetParam()) + ".cubin")),
        cubin_(file_) {}
  // Offsets of all instructions of a name.
  static std::vector<int64_t> all(const std::vector<SassInstruction>& code,
                                  const std::string& name) {
    std::vector<int64_t> out;
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].name() == name) out.push_back(static_cast<int64_t>(i) * kSassBytes);
    }
    return out;
  }
  // The first behind `offset` that waits on the barrier that it sets.
  static int64_t consumer(const std::vector<SassInstruction>& code, int64_t offset) {
    const size_t at = static_cast<size_t>(offset / kSassBytes);
    EXPECT_GE(code[at].write_barrier, 0);
    for (size_t i = at + 1; i < code.size(); ++i) {
      if (code[i].wait_mask >> code[at].write_barrier & 1) {
        return static_cast<int64_t>(i) * kSassBytes;
      }
    }
    return -1;
  }
  std::vector<std::byte> file_;
  Cubin cubin_;
};

TEST_P(Sass, TheEncodingIsTheOneThatWasTested) {
  EXPECT_EQ(std::to_string(cubin_.architecture()),
            std::string(GetParam()).substr(0, std::string(GetParam()).find('a')));
  EXPECT_TRUE(cubin_.is_known());
  EXPECT_THAT(cubin_.functions(), ElementsAre("chase", "staged", "two_loads"));
  EXPECT_THAT(cubin_.code("missing"), SizeIs(0));
  for (const std::string& function : cubin_.functions()) {
    const std::vector<SassInstruction> code = cubin_.code(function);
    ASSERT_FALSE(code.empty());
    EXPECT_THAT(all(code, "EXIT"), testing::Not(SizeIs(0)));
    // The compiler closes each kernel with a branch to itself and pads it with NOPs.
    const std::vector<int64_t> branches = all(code, "BRA");
    ASSERT_FALSE(branches.empty());
    EXPECT_EQ(code[static_cast<size_t>(branches.back() / kSassBytes)].target, branches.back());
    EXPECT_EQ(code.back().name(), "NOP");
    for (const SassInstruction& instruction : code) {
      if (!instruction.is_branch()) continue;
      EXPECT_EQ(instruction.target % kSassBytes, 0) << function;
      EXPECT_GE(instruction.target, 0) << function;
      EXPECT_LT(instruction.target, static_cast<int64_t>(code.size()) * kSassBytes) << function;
    }
  }
}

TEST_P(Sass, TheLoadOfAChainWaitsForTheLoadBefore) {
  const std::vector<SassInstruction> code = cubin_.code("chase");
  const std::vector<int64_t> loads = all(code, "LDG");
  ASSERT_THAT(loads, SizeIs(1));
  // Round the loop: the consumer stands before the load.
  const SassInstruction& load = code[static_cast<size_t>(loads[0] / kSassBytes)];
  const uint32_t bit = 1u << load.write_barrier;
  int n_consumers = 0;
  for (int64_t at = 0; at < static_cast<int64_t>(code.size()) * kSassBytes; at += kSassBytes) {
    if ((code[static_cast<size_t>(at / kSassBytes)].wait_mask & bit) == 0) continue;
    const std::vector<int64_t> producers = find_producers(code, at);
    n_consumers += std::ranges::find(producers, loads[0]) != producers.end();
  }
  EXPECT_GE(n_consumers, 2) << "the address of the next load, and the store";
}

TEST_P(Sass, TwoLoadsInFlightAreBothCandidates) {
  const std::vector<SassInstruction> code = cubin_.code("two_loads");
  const std::vector<int64_t> loads = all(code, "LDG");
  ASSERT_THAT(loads, SizeIs(2));
  const int64_t at = std::max(consumer(code, loads[0]), consumer(code, loads[1]));
  ASSERT_GT(at, loads[1]);
  // One barrier for both, or one each that the product waits for.
  EXPECT_THAT(find_producers(code, at), ElementsAre(loads[1], loads[0]));
  // The first instruction waits for nothing.
  EXPECT_THAT(find_producers(code, 0), SizeIs(0));
}

TEST_P(Sass, OnlyLoadsAreProducers) {
  for (const std::string& function : cubin_.functions()) {
    const std::vector<SassInstruction> code = cubin_.code(function);
    for (size_t i = 0; i < code.size(); ++i) {
      for (const int64_t producer : find_producers(code, static_cast<int64_t>(i) * kSassBytes)) {
        const SassInstruction& from = code[static_cast<size_t>(producer / kSassBytes)];
        EXPECT_TRUE(from.may_load()) << function << " " << i << " " << from.name();
      }
    }
  }
}

TEST_P(Sass, AWaitForCopiesNamesTheCopies) {
  const std::vector<SassInstruction> code = cubin_.code("staged");
  const std::vector<int64_t> waits = all(code, "DEPBAR");
  ASSERT_FALSE(waits.empty());
  EXPECT_EQ(find_producers(code, waits.front()), all(code, "LDGSTS"));
  EXPECT_THAT(all(code, "LDGSTS"), SizeIs(1));
}

// A wait for bulk copies as sm_90 has it: SYNCS asks, the branch back waits for the answer.
TEST(SassCode, ABranchThatWaitsForABulkCopyNamesTheQuestion) {
  constexpr uint64_t kCode[][2] = {{0x00000014150075a7, 0x000ea8000800017f},
                                   {0x0000001602027224, 0x002fc800078e02ff},
                                   {0x00000068035d7224, 0x000fe200078e0202},
                                   {0x000001c400f08947, 0x004fec0003800000}};
  std::vector<SassInstruction> code;
  for (const auto& words : kCode) {
    std::array<std::byte, kSassBytes> bytes;
    std::memcpy(bytes.data(), words, sizeof bytes);
    code.push_back(decode_sass(bytes, static_cast<int64_t>(code.size()) * kSassBytes, 90));
  }
  EXPECT_EQ(code[0].name(), "SYNCS");
  EXPECT_EQ(code[1].name(), "IMAD");
  EXPECT_EQ(code[3].name(), "BRA");
  EXPECT_THAT(find_producers(code, 3 * kSassBytes), ElementsAre(0));
}

// Codes that nvdisasm gives these names, with operands in registers, immediates and constants.
TEST(SassCode, ArithmeticHasItsNameWhereverTheOperandsAre) {
  const auto name = [](int opcode) {
    SassInstruction instruction{};
    instruction.opcode = opcode;
    return instruction.name();
  };
  for (const int opcode : {0x223, 0x423, 0x823, 0xc23}) EXPECT_EQ(name(opcode), "FFMA");
  for (const int opcode : {0x221, 0x421, 0xe21}) EXPECT_EQ(name(opcode), "FADD");
  for (const int opcode : {0x230, 0x430}) EXPECT_EQ(name(opcode), "HADD2");
  for (const int opcode : {0x202, 0x802, 0xc02}) EXPECT_EQ(name(opcode), "MOV");
  EXPECT_EQ(name(0x2ff), "0x2ff");
}

TEST_P(Sass, DamagedFilesAreRefused) {
  const auto refuse = [](std::span<const std::byte> bytes) {
    try {
      const Cubin cubin(bytes);
      for (const std::string& function : cubin.functions()) cubin.code(function);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file);
    }
  };
  EXPECT_THROW(Cubin({}), Error);
  EXPECT_THROW(Cubin(std::span(file_).first(63)), Error);
  for (size_t size = 64; size < file_.size(); size += 97) refuse(std::span(file_).first(size));
  for (size_t at = 40; at < 64; ++at) {
    std::vector<std::byte> damaged = file_;
    damaged[at] ^= std::byte{0xff};
    refuse(damaged);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Sass, testing::Values(FATHOM_SASS_ARCHITECTURES),
                         [](const auto& test) { return "sm_" + std::string(test.param); });

TEST(SassUnknown, AnotherArchitectureIsNotKnown) {
  std::vector<std::byte> file =
      read_file(FATHOM_SASS_FIXTURES "/sass_" +
                std::string(*std::begin({FATHOM_SASS_ARCHITECTURES})) + ".cubin");
  file[49] = std::byte{130};  // a later one
  EXPECT_EQ(Cubin(file).architecture(), 130);
  EXPECT_FALSE(Cubin(file).is_known());
}

}  // namespace
}  // namespace fathom::cuda

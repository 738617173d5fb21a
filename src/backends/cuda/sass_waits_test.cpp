// SPDX-License-Identifier: Apache-2.0
// In the code of the library, nothing that a step changes is read before a kernel has waited for
// those before it: of each kernel the reads that the compiler placed there are counted and held
// against a list of weights, and of the positions that no kernel but the first of a step writes.
// Without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/sass.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

// What kernels of a name may read early, at most so many instructions of a kind.
struct Allowed {
  const char* kernel;
  const char* reads;
  int most;
  const char* why;
};
constexpr Allowed kBeforeWait[] = {
    {"matmul_one_kernel", "UBLKCP", 2, "tiles of weights"},
    {"matmul_one_kernel", "LDG.128", 8, "weights of the norm, for warps that copy and multiply"},
    {"matmul_few_kernel", "UBLKCP", 1, "tiles of weights"},
    {"matmul_kernel", "UBLKCP", 1, "tiles of weights"},
    {"matmul_kernelILi4E", "LDG.128", 4, "weights of the norm"},
    {"matmul_acts_kernel", "LDG.128", 4, "weights of the norm"},
    {"attn_kernel", "LDG.32", 24, "positions, slots, pages"},
    {"attn_kernel", "LDGSTS.128", 64, "tokens that were cached before the step"},
    {"attn_flash_kernel", "LDG.32", 24, "positions, slots, pages"},
};
constexpr Allowed kNeverWaits[] = {
    {"matmul_prefill_kernel", "UBLKCP", 1, "the warp that copies weights waits for nothing"},
    // The second pass of a rehearsal is not known to be one: in it the wait seems to be left out.
    {"matmul_few_kernel", "LD.32", 64, "sums of the blocks of a cluster"},
    {"matmul_few_kernel", "LDG.32", 4, "the residual, and biases"},
    {"matmul_few_kernel", "CALL", 2, "a division"},
};
// Launched when all before them have ended (launch_in_order).
constexpr const char* kInOrder[] = {"read_stream_kernel", "read_cached_kernel",
                                    "fma_stream_kernel",  "mma_stream_kernel",
                                    "attn_seed_",         "check_and_spoil_kernel"};

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::bad_file, "no {}: this test runs where it was built", path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

bool is_of(const std::string& function, const char* kernel) {
  // Mangled names have their length before them: matmul_kernel is no part of another's name.
  const size_t at = function.find(kernel);
  return at != std::string::npos && at > 0 &&
         std::isdigit(static_cast<unsigned char>(function[at - 1])) != 0;
}

std::string kind(const SassInstruction& of) {
  return of.may_load() ? of.name() + "." + std::to_string(of.access_bits) : of.name();
}

// What is read early and is not allowed, in words; empty: nothing.
template <size_t n>
std::string refused(const std::string& function, const std::vector<SassInstruction>& code,
                    const std::vector<int64_t>& early, const Allowed (&allowed)[n]) {
  std::map<std::string, std::vector<int64_t>> found;
  for (const int64_t at : early)
    found[kind(code[static_cast<size_t>(at / kSassBytes)])].push_back(at);
  std::string out;
  for (const auto& [reads, offsets] : found) {
    int most = 0;
    for (const Allowed& a : allowed) {
      if (is_of(function, a.kernel) && reads == a.reads) most = std::max(most, a.most);
    }
    if (static_cast<int>(offsets.size()) <= most) continue;
    out += fmt::format("{} {}, at most {} allowed, at", offsets.size(), reads, most);
    for (const int64_t at : offsets) out += fmt::format(" {:#x}", at);
    out += "; ";
  }
  return out;
}

struct Kernel {
  std::string name;
  std::vector<SassInstruction> code;
  bool waits() const {
    return std::ranges::any_of(code, [](const auto& i) { return i.is_pdl_wait(); });
  }
};
std::vector<Kernel> kernels_for_sm90(const std::vector<std::byte>& file) {
  std::vector<Kernel> out;
  for (const std::span<const std::byte> bytes : find_cubins(file)) {
    const Cubin cubin(bytes);
    if (cubin.architecture() != 90) continue;
    for (const std::string& name : cubin.functions()) out.push_back({name, cubin.code(name)});
  }
  return out;
}

TEST(SassWaits, NoKernelOfTheLibraryReadsEarly) {
  const std::vector<std::byte> file = read_file(FATHOM_CUDA_LIBRARY);
  ASSERT_FALSE(find_cubins(file).empty()) << "is the code compressed?";
  const std::vector<Kernel> kernels = kernels_for_sm90(file);
  if (kernels.empty()) GTEST_SKIP() << "the library has no code for sm_90";
  int n_waiting = 0;
  for (const Kernel& kernel : kernels) {
    if (!kernel.waits()) {
      EXPECT_TRUE(std::ranges::any_of(
          kInOrder, [&](const char* name) { return kernel.name.find(name) != std::string::npos; }))
          << kernel.name << " never waits for the kernel before it";
      continue;
    }
    ++n_waiting;
    const EarlyReads early = find_early_reads(kernel.code);
    EXPECT_EQ(refused(kernel.name, kernel.code, early.before_wait, kBeforeWait), "")
        << kernel.name << " reads before it waits";
    EXPECT_EQ(refused(kernel.name, kernel.code, early.never_waits, kNeverWaits), "")
        << kernel.name << " reads and does not wait";
  }
  EXPECT_GT(n_waiting, 50);
  RecordProperty("kernels", n_waiting);
}

// Of the program itself: kernels with and without the mistake (slow_producer_fixture.cu).
TEST(SassWaits, AnEarlyReadIsRefused) {
  int n_found = 0;
  for (const Kernel& kernel : kernels_for_sm90(read_file("/proc/self/exe"))) {
    const bool is_early = is_of(kernel.name, "early_reader_kernel");
    if (!is_early && !is_of(kernel.name, "waiting_reader_kernel")) continue;
    ++n_found;
    const EarlyReads early = find_early_reads(kernel.code);
    EXPECT_EQ(refused(kernel.name, kernel.code, early.before_wait, kBeforeWait).empty(), !is_early)
        << kernel.name;
    EXPECT_TRUE(early.never_waits.empty());
  }
  if (n_found == 0) GTEST_SKIP() << "the program has no code for sm_90";
  EXPECT_EQ(n_found, 2);
}

// A kernel by hand: a rehearsal is not early, a load on the way to the wait is.
TEST(SassWaits, ARehearsalIsNotEarly) {
  constexpr int kLdg = 0x981, kBra = 0x947, kExit = 0x94d, kWait = 0x82e, kNop = 0x918;
  const auto at = [](int index) { return index * kSassBytes; };
  std::vector<SassInstruction> code(7);
  const auto set = [&](int index, int opcode, int target = -1, bool always = true) {
    code[static_cast<size_t>(index)].opcode = opcode;
    code[static_cast<size_t>(index)].always = always;
    if (target >= 0) code[static_cast<size_t>(index)].target = at(target);
  };
  set(0, kLdg);            // before the loop: early
  set(1, kBra, 3, false);  // the first pass goes round the wait
  set(2, kWait);
  set(3, kLdg);            // in both passes: a rehearsal, then behind the wait
  set(4, kBra, 1, false);  // again
  set(5, kExit);
  set(6, kNop);
  EXPECT_EQ(find_early_reads(code).before_wait, std::vector<int64_t>{at(0)});
  std::swap(code[1], code[3]);  // the load stands above the wait
  code[1].opcode = kLdg;
  set(3, kNop);
  EXPECT_EQ(find_early_reads(code).before_wait, (std::vector<int64_t>{at(0), at(1)}));
}

}  // namespace
}  // namespace fathom::cuda

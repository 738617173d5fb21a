// SPDX-License-Identifier: Apache-2.0
// A fuzz target without a fuzzer: all its seeds, then mutations of them in a fixed order for a few
// seconds. The same inputs on every machine; a faster one gets further down the list.
// FATHOM_FUZZ_SUITE, the name of the suite, tells the programs of several targets apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>

#include "fuzz_target.hpp"

namespace fathom::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMutationSeconds = 5;
constexpr double kInputSeconds = 2;  // a hang, for inputs of a few KB
constexpr size_t kMaxBytes = 64 << 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs one input in a heap block of exactly its size, so that ASan sees a read past its end.
void run(const std::string& input) {
  const auto block = std::make_unique<uint8_t[]>(input.size());
  std::memcpy(block.get(), input.data(), input.size());
  const auto start = Clock::now();
  LLVMFuzzerTestOneInput(block.get(), input.size());
  ASSERT_LT(seconds_since(start), kInputSeconds);
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (uint64_t n = 1 + below(4); n > 0; --n) mutate(text);
    if (text.size() > kMaxBytes) text.resize(kMaxBytes);
    return text;
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }

  void mutate(std::string& text) {
    constexpr uint64_t kNumbers[] = {0,          1,          2,          0x7f,       0x80,
                                     0xff,       0x7fff,     0xffff,     0x7fffffff, 0x80000000,
                                     0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull};
    if (text.empty()) text.push_back('x');
    const size_t at = below(text.size());
    const size_t length = 1 + below(std::min<size_t>(text.size() - at, 32));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(below(256));
        break;
      case 2: {
        const uint64_t number = kNumbers[below(std::size(kNumbers))];
        const size_t width = std::min<size_t>(size_t{1} << below(4), text.size() - at);
        std::memcpy(text.data() + at, &number, width);
        break;
      }
      case 3:
        text.erase(at, length);
        break;
      case 4:
        text.insert(at, std::string(text, at, length));
        break;
      default: {
        const std::string& other = seeds_[below(seeds_.size())];
        text.resize(at);
        if (!other.empty()) text += other.substr(below(other.size()));
      }
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{20260101};
};

TEST(FATHOM_FUZZ_SUITE, Seeds) {
  const std::vector<std::string> inputs = seeds();
  ASSERT_FALSE(inputs.empty());
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_THROW(run(inputs[i]));
  }
}

TEST(FATHOM_FUZZ_SUITE, Mutations) {
  const std::vector<std::string> inputs = seeds();
  Mutator mutator(inputs);
  const auto start = Clock::now();
  uint64_t n = 0;
  for (; seconds_since(start) < kMutationSeconds; ++n) {
    SCOPED_TRACE(n);
    ASSERT_NO_THROW(run(mutator.next()));
    if (HasFatalFailure()) return;
  }
  RecordProperty("mutations", std::to_string(n));
  EXPECT_GT(n, 100u) << "the target is too slow to be worth fuzzing";
}

}  // namespace
}  // namespace fathom::fuzz

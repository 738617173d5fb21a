// SPDX-License-Identifier: Apache-2.0
// Files that are wrong: each is refused with the code and words of its case, in bounded time, and
// with no more memory than its bytes justify.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"
#include "gguf/gguf_file.hpp"
#include "tests/support/allocation_counter.hpp"
#include "tests/support/gguf_corpus.hpp"
#include "tests/support/sanitizer.hpp"

namespace fathom::gguf {
namespace {

// All that was asked for, freed or not. The densest good files need about 10 bytes a byte.
constexpr uint64_t kAllowedPerByte = 16;
constexpr uint64_t kAllowedBytes = 16 << 10;

constexpr double kMostSeconds = test::kThreadSanitizer ? 20 : 1;

struct Outcome {
  std::optional<ErrorCode> refusal;
  std::string message;
  uint64_t allocated = 0;
  double seconds = 0;
};

Outcome parse(const std::string& image, OpenMode mode) {
  // A copy of exactly the file's size on the heap: a read past its end is seen by ASan.
  const std::vector<std::byte> bytes(test::as_bytes(image).begin(), test::as_bytes(image).end());
  const std::string name = "case.gguf";
  Outcome outcome;
  const int64_t before = test::allocation_bytes();
  const auto start = std::chrono::steady_clock::now();
  try {
    const File file = File::parse(bytes, mode, name);
    for (const TensorInfo& tensor : file.tensors()) {
      const auto data = file.data(tensor);
      EXPECT_LE(data.size(), bytes.size());
    }
  } catch (const Error& error) {
    outcome.refusal = error.code();
    outcome.message = error.what();
  }
  outcome.allocated = static_cast<uint64_t>(test::allocation_bytes() - before);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

TEST(GgufHostile, EveryCaseEndsAsItMust) {
  const std::vector<test::GgufCase> corpus = test::gguf_corpus();
  ASSERT_GT(corpus.size(), 1000u);
  size_t n_refused = 0;
  for (const test::GgufCase& c : corpus) {
    SCOPED_TRACE(c.name);
    const Outcome outcome = parse(c.image, OpenMode::load);
    EXPECT_EQ(outcome.refusal, c.refusal) << outcome.message;
    EXPECT_LE(outcome.allocated, kAllowedPerByte * c.image.size() + kAllowedBytes);
    EXPECT_LT(outcome.seconds, kMostSeconds);
    if (!outcome.refusal) continue;
    ++n_refused;
    EXPECT_EQ(outcome.message.find('\n'), std::string::npos) << outcome.message;
    EXPECT_TRUE(outcome.message.starts_with("case.gguf: ")) << outcome.message;
    for (const std::string& part : c.parts) {
      EXPECT_NE(outcome.message.find(part), std::string::npos)
          << "'" << part << "' is not in: " << outcome.message;
    }
  }
  EXPECT_GT(n_refused, 900u);
}

// inspect is more tolerant, but no less safe.
TEST(GgufHostile, InspectEndsCleanlyToo) {
  for (const test::GgufCase& c : test::gguf_corpus()) {
    SCOPED_TRACE(c.name);
    const Outcome outcome = parse(c.image, OpenMode::inspect);
    EXPECT_LE(outcome.allocated, kAllowedPerByte * c.image.size() + kAllowedBytes);
    EXPECT_LT(outcome.seconds, kMostSeconds);
    if (!c.refusal) {
      EXPECT_EQ(outcome.refusal, std::nullopt) << outcome.message;
    }
    if (outcome.refusal) {
      EXPECT_TRUE(outcome.refusal == ErrorCode::bad_file ||
                  outcome.refusal == ErrorCode::unsupported);
    }
  }
}

}  // namespace
}  // namespace fathom::gguf

// SPDX-License-Identifier: Apache-2.0
// What invariance_test.cpp holds for tiny models, on SmolLM2-135M and real text: its widths, depth
// and formats are those of models in use. Minutes: label long.
#include <gtest/gtest.h>

#include "tests/support/invariance.hpp"
#include "tests/support/smollm2.hpp"

namespace fathom::test {
namespace {

constexpr int64_t kTokens = 256;

class SmolLM2Invariance : public SmolLM2Test {
 protected:
  // Step by step on one thread of the best instruction set: what all others must equal.
  void SetUp() override {
    find_model_and_text(kTokens);
    if (HasFailure() || IsSkipped()) return;
    options_ = options_for(cpu_targets().front());
    if (expected_.empty()) expected_ = decode_all(path_, options_, tokens_);
    ASSERT_EQ(expected_.size(), static_cast<size_t>(kTokens));
    ASSERT_NE(expected_[0], expected_[1]) << "the logits do not depend on the token";
  }
  void expect_prefill(const std::string& what) const {
    EXPECT_EQ(prefill_all(path_, options_, tokens_), expected_) << what;
  }

  OpenOptions options_;
  static inline Hashes expected_;
};

TEST_F(SmolLM2Invariance, Threads) {
  for (const int threads : {1, 2, 3}) {
    options_.threads = threads;
    expect_prefill(std::to_string(threads) + " threads");
  }
}

TEST_F(SmolLM2Invariance, DecodeOnThreads) {
  for (const int threads : {2, 3}) {
    options_.threads = threads;
    EXPECT_EQ(decode_all(path_, options_, tokens_), expected_) << threads << " threads";
  }
}

TEST_F(SmolLM2Invariance, PrefillChunks) {
  for (const int chunk : {1, 37, 512}) {
    options_.n_ubatch = chunk;
    expect_prefill("chunks of " + std::to_string(chunk));
  }
}

TEST_F(SmolLM2Invariance, Capacity) {
  for (const int64_t n_ctx : {256, 1000, 8192}) {
    options_.n_ctx = n_ctx;
    expect_prefill("a context of " + std::to_string(n_ctx));
  }
}

TEST_F(SmolLM2Invariance, Pages) {
  for (const int page_tokens : {0, 16, 64}) {
    options_.page_tokens = page_tokens;
    expect_prefill("pages of " + std::to_string(page_tokens));
  }
}

TEST_F(SmolLM2Invariance, BatchPosition) {
  for (int place = 0; place < 3; ++place) {
    EXPECT_EQ(batch_all(path_, options_, tokens_, place), expected_) << "place " << place;
  }
}

TEST_F(SmolLM2Invariance, InstructionSets) {
  for (const Target& target : cpu_targets()) {
    options_.isa = target.isa;
    expect_prefill(target.isa);
  }
}

}  // namespace
}  // namespace fathom::test

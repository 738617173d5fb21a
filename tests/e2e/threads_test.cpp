// SPDX-License-Identifier: Apache-2.0
// A whole model on several threads, from writing it to its logits: small enough for the thread
// sanitizer, which looks at every path here where threads meet. The bits are those of one thread.
#include <gtest/gtest.h>

#include "tests/support/invariance.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

constexpr int64_t kPrompt = 19, kDecoded = 3;

// Prefill in chunks of 8, 8 and 3, logits of every row, then single steps.
Hashes prefill_and_decode(const std::string& path, OpenOptions options, int threads) {
  options.threads = threads;
  options.n_ctx = 64;
  options.n_ubatch = 8;
  options.page_tokens = 16;
  const auto engine = engine::Engine::open(path, options);
  const std::vector<int32_t> tokens = teacher_tokens(kPrompt + kDecoded, engine->info().vocab_size);
  engine::Sequence sequence(engine);
  Hashes out = prefill_hashes(sequence, std::span(tokens).first(kPrompt));
  const Hashes decoded = decode_hashes(sequence, std::span(tokens).subspan(kPrompt));
  out.insert(out.end(), decoded.begin(), decoded.end());
  return out;
}

class Threads : public testing::TestWithParam<KvType> {};

TEST_P(Threads, WholeModelHasTheBitsOfOneThread) {
  convert::SynthOptions synth;
  synth.shape = "tiny-kquant";
  synth.n_layers = 2;
  synth.n_threads = 2;
  const std::string path = tiny_synth(synth);
  OpenOptions options = options_for(cpu_targets().front());
  options.kv_type = GetParam();
  const Hashes expected = prefill_and_decode(path, options, 1);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kPrompt + kDecoded));
  ASSERT_NE(expected[0], expected[1]);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(prefill_and_decode(path, options, threads), expected) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Caches, Threads, testing::Values(KvType::f16, KvType::q8_0),
                         [](const auto& test) {
                           return test.param == KvType::f16 ? "f16" : "q8_0";
                         });

}  // namespace
}  // namespace fathom::test

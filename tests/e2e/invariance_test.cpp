// SPDX-License-Identifier: Apache-2.0
// The bits of the logits do not depend on how the work was cut: hashes over 256 teacher-forced
// tokens are equal for every chunk size, thread count, cache form, batch position and, on the CPU,
// instruction set.
#include <gtest/gtest.h>

#include <map>
#include <span>

#include "fathom/error.hpp"
#include "tests/support/invariance.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

constexpr int64_t kTokens = 256;
// The portable set takes four times as long a token. That it gives the bits of the others over all
// tokens is InstructionSets' to show; here half of them show that its bits depend on nothing else.
constexpr int64_t kScalarTokens = 128;

struct SynthModel {
  const char *shape, *type;
};
constexpr SynthModel kModels[] = {{"tiny-kquant", "q4_k_m"},
                                  {"tiny-llama3", "q4_1"},
                                  {"tiny-qwen2", "q8_0"},
                                  {"tiny-qwen3", "f16"}};

std::vector<int32_t> teacher(const engine::Engine& engine, int64_t n) {
  return teacher_tokens(n, engine.info().vocab_size);
}

Hashes prefill_all(const std::string& path, const OpenOptions& options, int64_t n_tokens) {
  const auto engine = engine::Engine::open(path, options);
  return test::prefill_all(path, options, teacher(*engine, n_tokens));
}
Hashes decode_all(const std::string& path, const OpenOptions& options, int64_t n_tokens) {
  const auto engine = engine::Engine::open(path, options);
  return test::decode_all(path, options, teacher(*engine, n_tokens));
}

class Invariance : public testing::TestWithParam<std::tuple<SynthModel, Target>> {
 protected:
  void SetUp() override {
    const auto& [model, target] = GetParam();
    path_ = tiny_synth(model.shape, model.type);
    options_ = options_for(target);
    n_tokens_ = target.isa == std::string("scalar") ? kScalarTokens : kTokens;
    // Instruction sets share one expectation; the reference backend has its own.
    Hashes& known = expected_[key()];
    if (known.empty()) known = decode_all(path_, options_, n_tokens_);
    ASSERT_EQ(known.size(), static_cast<size_t>(n_tokens_));
    ASSERT_NE(known[0], known[1]) << "the logits do not depend on the token";
  }
  const Hashes& expected() const { return expected_.at(key()); }

  std::string path_;
  OpenOptions options_;
  int64_t n_tokens_ = 0;

 private:
  std::string key() const { return path_ + options_.backend + std::to_string(n_tokens_); }

  static inline std::map<std::string, Hashes> expected_;
};

TEST_P(Invariance, Rerun) { EXPECT_EQ(decode_all(path_, options_, n_tokens_), expected()); }

TEST_P(Invariance, PrefillChunks) {
  for (const int chunk : {1, 3, 16, 512}) {
    options_.n_ubatch = chunk;
    EXPECT_EQ(prefill_all(path_, options_, n_tokens_), expected()) << "chunk " << chunk;
  }
}

TEST_P(Invariance, RowsOfLogits) {
  for (const int rows : {1, 5, 300}) {
    options_.max_logits_rows = rows;
    EXPECT_EQ(prefill_all(path_, options_, n_tokens_), expected()) << rows << " rows of logits";
  }
}

TEST_P(Invariance, Threads) {
  for (const int threads : {2, 3}) {
    options_.threads = threads;
    EXPECT_EQ(prefill_all(path_, options_, n_tokens_), expected()) << threads << " threads";
  }
}

TEST_P(Invariance, Capacity) {
  for (const int64_t n_ctx : {256, 1000, 4096}) {
    options_.n_ctx = n_ctx;
    EXPECT_EQ(prefill_all(path_, options_, n_tokens_), expected()) << "context " << n_ctx;
  }
}

TEST_P(Invariance, Pages) {
  for (const int page_tokens : {16, 64, 256}) {
    options_.page_tokens = page_tokens;
    EXPECT_EQ(prefill_all(path_, options_, n_tokens_), expected()) << "pages of " << page_tokens;
  }
}

TEST_P(Invariance, BatchPosition) {
  constexpr int64_t kSteps = 64;
  const Hashes first(expected().begin(), expected().begin() + kSteps);
  const auto engine = engine::Engine::open(path_, options_);
  const std::vector<int32_t> tokens = teacher(*engine, kSteps);
  for (int place = 0; place < 3; ++place) {
    EXPECT_EQ(batch_all(path_, options_, tokens, place), first) << "place " << place;
  }
}

TEST_P(Invariance, TruncateAndGoOn) {
  options_.page_tokens = 16;
  const auto engine = engine::Engine::open(path_, options_);
  const std::vector<int32_t> tokens = teacher(*engine, n_tokens_);
  engine::Sequence sequence(engine);
  // What is forgotten was other text.
  sequence.prefill(std::span(tokens).first(50), LogitsMode::skip);
  sequence.prefill(std::span(tokens).first(120), LogitsMode::skip);
  sequence.truncate(50);
  const Hashes rest = prefill_hashes(sequence, std::span(tokens).subspan(50));
  EXPECT_EQ(rest, Hashes(expected().begin() + 50, expected().end()));
}

// The other cache formats change the logits, but prefill and decode still agree.
TEST_P(Invariance, KvFormats) {
  const int head_dim = engine::Engine::open(path_, options_)->info().head_dim;
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8_0, KvType::fp8_e4m3}) {
    options_.kv_type = type;
    if (type == KvType::q8_0 && head_dim % 32 != 0) {
      EXPECT_THROW(engine::Engine::open(path_, options_), Error);
      continue;
    }
    const auto engine = engine::Engine::open(path_, options_);
    const std::vector<int32_t> tokens = teacher(*engine, 100);
    Hashes decoded;
    {
      engine::Sequence sequence(engine);
      decoded = decode_hashes(sequence, tokens);
    }
    engine::Sequence sequence(engine);
    EXPECT_EQ(prefill_hashes(sequence, tokens), decoded) << static_cast<int>(type);
    EXPECT_NE(decoded, Hashes(expected().begin(), expected().begin() + 100));
  }
}

std::string test_name(const testing::TestParamInfo<std::tuple<SynthModel, Target>>& info) {
  const auto& [model, target] = info.param;
  std::string name =
      std::string(model.shape) + "_" + model.type + "_" + target.backend + target.isa;
  std::erase(name, '-');
  return name;
}

// The K-quant model on every target, the others on the best instruction set; that sets agree on
// them too is the next suite's.
std::vector<std::tuple<SynthModel, Target>> cases() {
  std::vector<std::tuple<SynthModel, Target>> out;
  for (const Target& target : all_targets()) out.emplace_back(kModels[0], target);
  for (const SynthModel& model : std::span(kModels).subspan(1)) {
    out.emplace_back(model, cpu_targets().front());
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Invariance, testing::ValuesIn(cases()), test_name);

class InstructionSets : public testing::TestWithParam<SynthModel> {};

TEST_P(InstructionSets, GiveTheSameBits) {
  const std::string path = tiny_synth(GetParam().shape, GetParam().type);
  const std::vector<Target> targets = cpu_targets();
  if (targets.size() < 2) GTEST_SKIP() << "this machine has one instruction set only";
  const Hashes expected = prefill_all(path, options_for(targets.front()), kTokens);
  for (const Target& target : targets) {
    EXPECT_EQ(prefill_all(path, options_for(target), kTokens), expected) << target.isa;
  }
}

INSTANTIATE_TEST_SUITE_P(All, InstructionSets, testing::ValuesIn(kModels),
                         [](const testing::TestParamInfo<SynthModel>& param) {
                           std::string name =
                               std::string(param.param.shape) + "_" + param.param.type;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace fathom::test

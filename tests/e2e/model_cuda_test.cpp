// SPDX-License-Identifier: Apache-2.0
// Whole models on the GPU: as near to the exact model as the CPU's engine is, and with bits that do
// not depend on how the work was cut. Skips where no GPU can be used.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "tests/support/divergence.hpp"
#include "tests/support/invariance.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

struct SynthModel {
  const char *shape, *type;
  int n_layers;
  KvType kv;
};
// Few layers and a small vocabulary, since the reference runs them too.
constexpr SynthModel kModels[] = {
    {"smollm2-135m", "q4_1", 6, KvType::f16},     {"qwen2.5-0.5b", "q4_k_m", 4, KvType::f16},
    {"qwen2.5-0.5b", "q8_0", 3, KvType::q8_0},    {"qwen3-8b", "q5_k_m", 1, KvType::f16},
    {"llama-3.1-8b", "q6_k", 1, KvType::bf16},    {"smollm2-135m", "bf16", 6, KvType::f16},
    {"qwen2.5-0.5b", "q6_k", 3, KvType::fp8_e4m3}};

std::string path_of(const SynthModel& model) {
  convert::SynthOptions options;
  options.shape = model.shape;
  options.type = model.type;
  options.n_layers = model.n_layers;
  options.vocab_size = 2048;
  return tiny_synth(options);
}

class CudaModel : public testing::TestWithParam<SynthModel> {
 protected:
  void SetUp() override {
    try {
      load_backend("cuda", "").device->info();
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
    path_ = path_of(GetParam());
    options_.backend = "cuda";
    options_.n_ctx = 512;
    options_.kv_type = GetParam().kv;
  }
  std::vector<int32_t> tokens(int64_t n) const { return teacher_tokens(n, 2048); }

  std::string path_;
  OpenOptions options_;
};

TEST_P(CudaModel, IsAsNearToTheExactModelAsTheCpu) {
  constexpr int64_t kTokens = 288;
  OpenOptions exact;
  exact.backend = "reference";
  exact.n_ctx = 512;
  exact.kv_type = KvType::f32;
  OpenOptions cpu = options_;
  cpu.backend = "cpu";
  const std::vector<float> oracle = all_logits(path_, exact, tokens(kTokens));
  const Divergence of_cpu = divergence(oracle, all_logits(path_, cpu, tokens(kTokens)), 2048);
  const bool real = std::string(GetParam().type) == "bf16";
  // Few rows a step have int8 activations, many those of 16 bits.
  for (const int chunk : {16, 512}) {
    OpenOptions options = options_;
    options.n_ubatch = chunk;
    const Divergence of_gpu = divergence(oracle, all_logits(path_, options, tokens(kTokens)), 2048);
    EXPECT_GT(of_gpu.entropy, 1.0) << "degenerate model";
    EXPECT_LE(of_gpu.mean_kl, real ? 1e-4 : 1.15 * of_cpu.mean_kl + 1e-5);
    EXPECT_GE(of_gpu.same_top, std::min(0.93, of_cpu.same_top - 0.03));
    std::printf("%s %s, chunks of %d: KL %.3g, CPU's %.3g; same top %.3f, CPU's %.3f\n",
                GetParam().shape, GetParam().type, chunk, of_gpu.mean_kl, of_cpu.mean_kl,
                of_gpu.same_top, of_cpu.same_top);
  }
}

// A variant of attention in place of the op's entry; chunks of few rows, which it takes itself.
TEST_P(CudaModel, IsAsNearWithAVariantOfAttention) {
  if (GetParam().kv != KvType::f16) GTEST_SKIP() << "the variants read an f16 cache";
  OpenOptions exact;
  exact.backend = "reference";
  exact.n_ctx = 512;
  exact.kv_type = KvType::f32;
  const std::vector<float> oracle = all_logits(path_, exact, tokens(100));
  OpenOptions options = options_;
  options.n_ubatch = 16;
  const std::vector<float> production = all_logits(path_, options, tokens(100));
  const Divergence own = divergence(oracle, production, 2048);
  for (const char* variant : {"seed", "seed:splits=8,staging=16,values=1,warps=8,window=256"}) {
    options.variant = variant;
    const std::vector<float> got = all_logits(path_, options, tokens(100));
    EXPECT_NE(got, production) << variant << " did not run";
    EXPECT_LE(divergence(oracle, got, 2048).mean_kl, 1.15 * own.mean_kl + 1e-5) << variant;
  }
  options.variant = "seed:splits=7";
  EXPECT_THROW(all_logits(path_, options, tokens(1)), Error);
}

TEST_P(CudaModel, BitsDoNotDependOnHowTheWorkWasCut) {
  constexpr int64_t kTokens = 100;
  const std::vector<int32_t> text = tokens(kTokens);
  const Hashes expected = decode_all(path_, options_, text);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kTokens));
  ASSERT_NE(expected[0], expected[1]) << "the logits do not depend on the token";
  EXPECT_EQ(decode_all(path_, options_, text), expected) << "rerun";
  for (const int chunk : {1, 3, 16, 32}) {
    OpenOptions options = options_;
    options.n_ubatch = chunk;
    EXPECT_EQ(prefill_all(path_, options, text), expected) << "chunk " << chunk;
  }
  for (const int page_tokens : {16, 64}) {
    OpenOptions options = options_;
    options.page_tokens = page_tokens;
    options.n_ctx = 1000;
    EXPECT_EQ(decode_all(path_, options, text), expected) << "pages of " << page_tokens;
  }
  const Hashes first(expected.begin(), expected.begin() + 48);
  for (const int place : {0, 1, 2}) {
    EXPECT_EQ(batch_all(path_, options_, std::span(text).first(48), place), first)
        << "place " << place;
  }
}

// From 33 rows a step on products may be others (Hopper): a tolerance class of their own, whose
// distance to the exact model the test above bounds. Within it bits do not depend on the cut.
TEST_P(CudaModel, BitsOfManyRowsDoNotDependOnHowTheyWereCut) {
  const std::vector<int32_t> text = tokens(200);
  const auto in_chunks = [&](int chunk) {
    OpenOptions options = options_;
    options.n_ubatch = chunk;
    return prefill_all(path_, options, text);
  };
  const Hashes expected = in_chunks(512);
  EXPECT_EQ(in_chunks(512), expected) << "rerun";
  EXPECT_EQ(in_chunks(100), expected);
  EXPECT_EQ(in_chunks(50), expected);
  const Hashes ends_in_few = in_chunks(65);  // 65, 65, 65, and 5 rows that are others
  EXPECT_EQ(Hashes(ends_in_few.begin(), ends_in_few.begin() + 195),
            Hashes(expected.begin(), expected.begin() + 195));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModel, testing::ValuesIn(kModels), [](const auto& test) {
  std::string name = std::string(test.param.shape) + "_" + test.param.type;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace fathom::test

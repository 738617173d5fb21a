// SPDX-License-Identifier: Apache-2.0
// The public API by itself, as a client sees it.
#include <gtest/gtest.h>
#include <fathom/fathom.hpp>

#include <cmath>
#include <limits>
#include <optional>

namespace fathom {
namespace {

const std::string kModel = std::string(FATHOM_SOURCE_DIR) + "/tests/fixtures/qwen2_bias.gguf";

Model open_model(int max_sequences = 1) {
  OpenOptions options;
  options.threads = 1;
  options.n_ctx = 64;
  options.max_sequences = max_sequences;
  return Model::open(kModel, options);
}

TEST(Api, DescribesTheModel) {
  const Model model = open_model();
  EXPECT_EQ(model.info().architecture, "qwen2");
  EXPECT_EQ(model.info().file_type, "F32");
  EXPECT_EQ(model.info().vocab_size, 260);
  EXPECT_EQ(model.info().n_ctx, 64);
  EXPECT_EQ(model.info().backend, "cpu");
  EXPECT_FALSE(model.info().isa.empty());
  EXPECT_GT(model.memory().total_bytes(), 0);
  EXPECT_EQ(model.memory().kv_token_bytes, 2 * 2 * 1 * 32 * 2);  // layers, K and V, f16
}

TEST(Api, TextToTokensAndBack) {
  const Model model = open_model();
  const std::string text = "the cat";
  const std::vector<int32_t> tokens = model.tokenize(text, {.add_special = false});
  EXPECT_LT(tokens.size(), text.size());  // "the" is one token
  EXPECT_EQ(model.detokenize(tokens), text);
  EXPECT_EQ(model.piece(tokens[0], false), "the");
}

TEST(Api, ABatchEqualsSingleSteps) {
  Model model = open_model(2);
  std::vector<float> alone;
  {
    Sequence sequence = model.sequence();
    sequence.prefill(std::vector<int32_t>{1, 2, 3}, LogitsMode::skip);
    sequence.step(4);
    alone.assign(sequence.logits().begin(), sequence.logits().end());
  }
  Sequence a = model.sequence(), b = model.sequence();
  a.prefill(std::vector<int32_t>{9, 9}, LogitsMode::skip);
  b.prefill(std::vector<int32_t>{1, 2, 3}, LogitsMode::skip);
  const Model::BatchEntry batch[] = {{&a, 7}, {&b, 4}};
  model.step(batch);
  EXPECT_EQ(std::vector<float>(b.logits().begin(), b.logits().end()), alone);
  EXPECT_EQ(b.size(), 4);
  EXPECT_EQ(a.stats().decode_tokens, 1);
}

TEST(Api, ASubmittedStepIsAStep) {
  Model model = open_model(2);
  const auto logits_after = [&](bool submits) {
    Sequence sequence = model.sequence();
    sequence.prefill(std::vector<int32_t>{1, 2, 3}, LogitsMode::skip);
    for (const int32_t token : {4, 5, 6, 7, 8, 9, 1}) {
      const Model::BatchEntry entry{&sequence, token};
      submits ? model.submit({&entry, 1}) : model.step({&entry, 1});
    }
    EXPECT_EQ(sequence.size(), 10);
    EXPECT_EQ(sequence.stats().decode_tokens, 7);
    const std::span<const float> logits = sequence.logits();
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> alone = logits_after(false);
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(logits_after(true), alone);
  model.wait();
}

TEST(Api, GreedyTextRepeatsAndSequencesOutliveTheModel) {
  std::optional<Model> model(open_model());
  const std::vector<int32_t> prompt = model->tokenize("the the");
  Sequence sequence = model->sequence();
  GenerateOptions options;
  options.max_tokens = 12;
  options.ignore_end_of_generation = true;
  const GenerateResult first = sequence.generate(prompt, options);
  const uint64_t hash = sequence.stats().logits_hash;
  EXPECT_NE(hash, 0u);
  model.reset();
  sequence.truncate(0);
  sequence.reset_stats();
  const GenerateResult second = sequence.generate(prompt, options);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.text, second.text);
  EXPECT_EQ(sequence.stats().logits_hash, hash);
  EXPECT_EQ(first.tokens.size(), 12u);
}

template <class Call>
void expect_usage_error(const Call& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error, expected one with " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Api, OptionsOutsideTheirEnumAreUsageErrors) {
  for (const int value : {-1, 2, 4, 99}) {
    OpenOptions options;
    options.activations = static_cast<ActivationType>(value);
    expect_usage_error([&] { Model::open(kModel, options); }, "activations: found");
  }
  for (const int value : {-1, 5, 99}) {
    OpenOptions options;
    options.kv_type = static_cast<KvType>(value);
    expect_usage_error([&] { Model::open(kModel, options); }, "KV cache type: found");
  }
}

TEST(Api, StepCostTakesWhatAStepCanTake) {
  const Model model = open_model();
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::pair<int64_t, int64_t> wrong[] = {
      {-1, 1}, {0, 0}, {0, -1}, {kHuge, 1}, {0, kHuge}, {(1 << 24) + 1, 1}, {0, (1 << 16) + 1}};
  for (const auto& [n_past, n_rows] : wrong) {
    expect_usage_error([&] { model.step_cost(n_past, n_rows); }, "step cost: found");
  }
  EXPECT_GT(model.step_cost(1 << 24, 1 << 16).flops_useful, 0);
}

TEST(Api, GenerateRefusesWrongOptionsBeforeThePrefill) {
  Model model = open_model();
  Sequence sequence = model.sequence();
  sequence.prefill(std::vector<int32_t>{1, 2, 3});
  const auto expect_refused = [&](const GenerateOptions& options, const std::string& part) {
    expect_usage_error([&] { sequence.generate(std::vector<int32_t>{4, 5}, options); }, part);
    EXPECT_EQ(sequence.size(), 3);
    EXPECT_FALSE(sequence.logits().empty()) << "no step has run";
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const LogitBias wrong[] = {{260, 1}, {-1, 1}, {0, kInfinity}, {0, NAN}};
  for (const LogitBias& bias : wrong) {
    GenerateOptions options;
    options.max_tokens = 0;
    options.logit_bias = {{1, 1}, bias};
    expect_refused(options, "logit bias: found");
  }
  GenerateOptions options;
  options.sampler.top_p = 2;
  expect_refused(options, "top-p: found");
}

TEST(Api, ErrorsCarryTheirCode) {
  try {
    Model::open("/nonexistent.gguf");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_file);
    EXPECT_EQ(exit_status(e.code()), 1);
  }
  Model model = open_model();
  Sequence sequence = model.sequence();
  EXPECT_THROW(model.sequence(), Error);
  EXPECT_THROW(sequence.prefill(std::vector<int32_t>(65, 1)), Error);
}

}  // namespace
}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// What a sequence, a batch and generate() promise: limits, errors that change nothing, costs,
// no allocation inside a step.
#include "engine/sequence.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "base/error.hpp"
#include "engine/generate.hpp"
#include "tests/support/allocation_counter.hpp"
#include "tests/support/edited_gguf.hpp"
#include "tests/support/engines.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

using engine::DecodeBatch;
using engine::Engine;
using testing::HasSubstr;

Target best_cpu() { return cpu_targets().front(); }

std::shared_ptr<Engine> open_tiny(const std::string& name, OpenOptions options) {
  return Engine::open(fixture(name + ".gguf"), options);
}
std::shared_ptr<Engine> open_tiny(const std::string& name = "llama_plain") {
  return open_tiny(name, options_for(best_cpu()));
}

template <class Fn>
std::string error_of(ErrorCode code, Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "no error";
}

TEST(Sequence, ASyntheticFillStandsForTokens) {
  OpenOptions options = options_for(best_cpu());
  options.n_ctx = 200;
  const auto engine = open_tiny("llama_plain", options);
  engine::Sequence sequence(engine);
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { sequence.fill_synthetic(10, 1); }),
              HasSubstr("prefill some first"));
  sequence.prefill(teacher_tokens(20, 260), LogitsMode::skip);
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { sequence.fill_synthetic(181, 1); }),
              HasSubstr("do not fit"));
  auto logits_after = [&](uint64_t seed) {
    sequence.truncate(20);
    sequence.fill_synthetic(179, seed);
    EXPECT_EQ(sequence.size(), 199);
    sequence.step(7);
    return std::vector<float>(sequence.logits().begin(), sequence.logits().end());
  };
  const std::vector<float> first = logits_after(1);
  for (const float x : first) ASSERT_TRUE(std::isfinite(x));
  EXPECT_EQ(logits_after(1), first);
  EXPECT_NE(logits_after(2), first);
  EXPECT_EQ(sequence.remaining(), 0);
}

TEST(Sequence, PromptLongerThanTheContextIsAnErrorThatChangesNothing) {
  OpenOptions options = options_for(best_cpu());
  options.n_ctx = 20;
  options.n_ubatch = 8;
  const auto engine = open_tiny("llama_plain", options);
  engine::Sequence sequence(engine);
  sequence.prefill(teacher_tokens(5, 260), LogitsMode::last);
  const std::vector<int32_t> before(sequence.tokens().begin(), sequence.tokens().end());
  EXPECT_THAT(error_of(ErrorCode::usage,
                       [&] { sequence.prefill(teacher_tokens(16, 260), LogitsMode::last); }),
              HasSubstr("16 tokens do not fit: the context holds 20, of which 5 are used"));
  EXPECT_THAT(sequence.tokens(), testing::ElementsAreArray(before));
  EXPECT_FALSE(sequence.logits().empty());
  sequence.prefill(teacher_tokens(15, 260), LogitsMode::last);
  EXPECT_EQ(sequence.remaining(), 0);
  error_of(ErrorCode::usage, [&] { sequence.step(1); });
  EXPECT_EQ(sequence.size(), 20);
}

TEST(Sequence, RefusesTokensOutsideTheVocabulary) {
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  for (const int32_t token : {-1, 260}) {
    EXPECT_THAT(error_of(ErrorCode::usage, [&] { sequence.step(token); }), HasSubstr("260"));
    EXPECT_THAT(error_of(ErrorCode::usage,
                         [&] {
                           sequence.prefill({&token, 1}, LogitsMode::skip);
                         }),
                HasSubstr("260"));
  }
  EXPECT_EQ(sequence.size(), 0);
}

TEST(Sequence, LogitsBelongToTheNewestStepOnly) {
  OpenOptions options = options_for(best_cpu());
  options.max_sequences = 2;
  const auto engine = open_tiny("llama_plain", options);
  engine::Sequence a(engine), b(engine);
  a.step(1);
  EXPECT_EQ(a.logits().size(), 260u);
  b.step(2);
  EXPECT_TRUE(a.logits().empty());
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { a.sample({}, {}); }), HasSubstr("no logits"));
  b.step(3, LogitsMode::skip);
  EXPECT_TRUE(b.logits().empty());
  error_of(ErrorCode::usage, [&] { engine::Sequence third(engine); });
}

TEST(Sequence, BatchesRefuseDoublesAndStrangers) {
  OpenOptions options = options_for(best_cpu());
  options.max_sequences = 2;
  const auto engine = open_tiny("llama_plain", options), other = open_tiny("llama_plain", options);
  engine::Sequence a(engine), stranger(other);
  const std::vector<DecodeBatch::Entry> twice{{&a, 1}, {&a, 2}}, mixed{{&a, 1}, {&stranger, 2}};
  error_of(ErrorCode::usage, [&] { DecodeBatch::step(*engine, twice, LogitsMode::last); });
  error_of(ErrorCode::usage, [&] { DecodeBatch::step(*engine, mixed, LogitsMode::last); });
  EXPECT_EQ(a.size(), 0);
}

TEST(Sequence, CancelStopsBetweenChunksAndKeepsWhatWasDone) {
  OpenOptions options = options_for(best_cpu());
  options.n_ubatch = 4;
  const auto engine = open_tiny("llama_plain", options);
  engine::Sequence sequence(engine);
  std::atomic<bool> cancel{false};
  const auto stop_after_two = [&](int64_t done, int64_t) { cancel = done >= 8; };
  error_of(ErrorCode::cancelled, [&] {
    sequence.prefill(teacher_tokens(40, 260), LogitsMode::last, {}, &cancel, stop_after_two);
  });
  EXPECT_EQ(sequence.size(), 8);
  EXPECT_EQ(engine->cache().length(0), 8);
  sequence.step(1);
  EXPECT_EQ(sequence.size(), 9);
}

// Calls at_op(n) before the n-th op, counted from 1.
struct CountingSink : OpScopeSink {
  explicit CountingSink(std::function<void(int)> callback) : at_op(std::move(callback)) {}
  void begin(const OpTag&, const Cost&) override { at_op(++n_ops); }
  void end() override {}
  std::function<void(int)> at_op;
  int n_ops = 0;
};

// The logits after `tokens` when a cancelled prefill came before them.
TEST(Sequence, CancelReachesIntoAChunk) {
  const auto tokens = teacher_tokens(30, 260);
  const auto first = std::span(tokens).first(10), second = std::span(tokens).subspan(10);
  for (const int page_tokens : {0, 16}) {
    OpenOptions options = options_for(best_cpu());
    options.page_tokens = page_tokens;
    const auto engine = open_tiny("llama_plain", options);
    engine::Sequence whole(engine);
    whole.prefill(first, LogitsMode::skip);
    whole.prefill(second, LogitsMode::last);
    const uint64_t expected = engine::logits_hash(whole.logits());
    whole.truncate(0);
    // A step is embed, five ops a layer and the head; 3 stops inside the first layer.
    for (const int stop_at : {1, 3, 2 + 5}) {
      whole.truncate(0);
      whole.prefill(first, LogitsMode::skip);
      std::atomic<bool> cancel{false};
      CountingSink sink([&](int n) { cancel = n >= stop_at; });
      engine->runner().set_sink(&sink);
      error_of(ErrorCode::cancelled, [&] { whole.prefill(second, LogitsMode::last, {}, &cancel); });
      engine->runner().set_sink(nullptr);
      EXPECT_EQ(sink.n_ops, stop_at);
      EXPECT_EQ(whole.size(), 10);
      EXPECT_EQ(engine->cache().length(0), 10);
      EXPECT_TRUE(whole.logits().empty());
      whole.prefill(second, LogitsMode::last);
      EXPECT_EQ(engine::logits_hash(whole.logits()), expected);
    }
  }
}

TEST(Sequence, CancelFromAnotherThreadEndsTheChunk) {
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  std::atomic<bool> cancel{false}, started{false};
  std::thread canceller([&] {
    while (!started) std::this_thread::yield();
    cancel = true;
  });
  CountingSink sink([&](int) {
    started = true;
    while (!cancel) std::this_thread::yield();
  });
  engine->runner().set_sink(&sink);
  error_of(ErrorCode::cancelled,
           [&] { sequence.prefill(teacher_tokens(40, 260), LogitsMode::last, {}, &cancel); });
  engine->runner().set_sink(nullptr);
  canceller.join();
  EXPECT_EQ(sink.n_ops, 1);
  EXPECT_EQ(sequence.size(), 0);
}

// Logits of all rows are made a few at a time: a chunk not wholly shown is not kept.
TEST(Sequence, CancelWhileLogitsAreVisitedForgetsTheChunk) {
  OpenOptions options = options_for(best_cpu());
  options.n_ubatch = 20;
  options.max_logits_rows = 4;
  const auto engine = open_tiny("llama_plain", options);
  engine::Sequence sequence(engine);
  std::atomic<bool> cancel{false};
  int64_t last_shown = -1;
  const auto visitor = [&](int64_t position, std::span<const float> rows) {
    last_shown = position + static_cast<int64_t>(rows.size()) / 260 - 1;
    cancel = last_shown >= 25;
  };
  error_of(ErrorCode::cancelled,
           [&] { sequence.prefill(teacher_tokens(40, 260), LogitsMode::all, visitor, &cancel); });
  EXPECT_EQ(last_shown, 27);
  EXPECT_EQ(sequence.size(), 20);
  EXPECT_EQ(engine->cache().length(0), 20);
}

// The f16 scale of one block of each quantised tensor in turn becomes NaN: sampling says so. Int8
// codes must not hide it.
TEST(Sequence, ANanScaleOfAWeightIsReported) {
  int n_tensors = 0;
  std::vector<Target> targets = cpu_targets();
  if (kThreadSanitizer) targets.resize(1);
  for (const auto& [shape, type] : {std::pair{"tiny-kquant", "q4_k_m"}, {"tiny-llama3", "q4_1"}}) {
    const std::string source = tiny_synth(shape, type);
    const gguf::File file = gguf::File::open(source);
    for (const gguf::TensorInfo& tensor : file.tensors()) {
      if (dtype_info(tensor.dtype()).block_elems == 1) continue;
      const bool unused_row =
          tensor.name == "token_embd.weight" && file.find_tensor("output.weight");
      if (unused_row) continue;  // of a token that the text does not have
      const int64_t block_bytes = dtype_info(tensor.dtype()).block_bytes;
      const int64_t at = tensor.dtype() == DType::q6_k ? block_bytes - 2 : 0;
      GgufEdit edit;
      edit.change_tensors[std::string(tensor.name)] = [&](std::span<std::byte> data) {
        const int64_t block = std::ssize(data) / block_bytes / 2;
        constexpr uint16_t kNan = 0x7e00;
        std::memcpy(data.data() + block * block_bytes + at, &kNan, sizeof kNan);
      };
      const EditedGguf edited(source, edit);
      for (const Target& target : targets) {
        for (const KvType kv_type : {KvType::f16, KvType::q8_0, KvType::fp8_e4m3}) {
          OpenOptions options = options_for(target);
          options.n_ctx = 64;
          options.kv_type = kv_type;
          const auto engine = Engine::open(edited.path(), options);
          engine::Sequence sequence(engine);
          sequence.prefill(teacher_tokens(5, engine->info().vocab_size), LogitsMode::last);
          EXPECT_THAT(error_of(ErrorCode::bad_file, [&] { sequence.sample({}, {}); }),
                      HasSubstr("not finite"))
              << tensor.name << " " << target.isa << ", cache " << static_cast<int>(kv_type);
        }
      }
      ++n_tensors;
    }
  }
  EXPECT_GT(n_tensors, 20);
}

TEST(Sequence, AStepAllocatesNothing) {
  for (const int page_tokens : {0, 16}) {
    OpenOptions options = options_for(best_cpu());
    options.page_tokens = page_tokens;
    const auto engine = open_tiny("qwen3_qk_norm", options);
    engine::Sequence sequence(engine);
    SamplerParams params;
    params.temperature = 0.8f;
    params.top_k = 20;
    params.top_p = 0.9f;
    params.repeat_penalty = 1.1f;
    sequence.prefill(teacher_tokens(5, 260), LogitsMode::last);
    sequence.step(sequence.sample(params, {}));
    const int64_t before = allocation_count();
    for (int i = 0; i < 100; ++i) sequence.step(sequence.sample(params, {}));
    EXPECT_EQ(allocation_count() - before, 0) << "pages of " << page_tokens;
  }
}

// Costs name the file's bytes: every tensor once, of the embedding one row, unless the head is
// tied to it; and the cache's bytes by its own formula.
TEST(Cost, AStepReadsTheFilesBytes) {
  for (const std::string& name : tiny_models()) {
    const auto engine = open_tiny(name);
    const gguf::File file = gguf::File::open(fixture(name + ".gguf"));
    int64_t expected = static_cast<int64_t>(file.tensor_bytes());
    const gguf::TensorInfo& embedding = *file.find_tensor("token_embd.weight");
    const int64_t row = static_cast<int64_t>(embedding.bytes) / engine->info().vocab_size;
    expected += row;
    if (file.find_tensor("output.weight")) expected -= static_cast<int64_t>(embedding.bytes);
    // Read when the model is opened, not in a step.
    if (const auto* divisors = file.find_tensor("rope_freqs.weight")) {
      expected -= static_cast<int64_t>(divisors->bytes);
    }
    EXPECT_EQ(engine->step_cost(0, 1, 1).weight_bytes, expected) << name;
    EXPECT_EQ(engine->step_cost(99, 1, 1).weight_bytes, expected) << name;
    EXPECT_EQ(engine->step_cost(99, 1, 1).kv_bytes, 100 * engine->memory().kv_token_bytes) << name;
  }
}

TEST(Cost, StatsSumTheDecodeSteps) {
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  sequence.prefill(teacher_tokens(10, 260), LogitsMode::last);
  sequence.step(1);
  sequence.step(2);
  const RunStats& stats = sequence.stats();
  EXPECT_EQ(stats.prompt_tokens, 10);
  EXPECT_EQ(stats.decode_tokens, 2);
  Cost expected = engine->step_cost(10, 1, 1);
  expected += engine->step_cost(11, 1, 1);
  EXPECT_EQ(stats.decode_cost.memory_bytes(), expected.memory_bytes());
  EXPECT_GT(stats.decode_s, 0);
}

TEST(Generate, DecodeTimeIsWhatAReaderSees) {
  using Clock = std::chrono::steady_clock;
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  GenerateOptions options;
  options.max_tokens = 6;
  options.ignore_end_of_generation = true;
  options.emit_special = true;
  // Forces a letter each time, so that every token is text at once.
  options.logit_bias = {{engine->tokenizer().encode("a").back(), 1e6f}};
  std::vector<Clock::time_point> seen;
  options.on_text = [&](std::string_view) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond a tiny model's step
    seen.push_back(Clock::now());
    return true;
  };
  const std::vector<int32_t> prompt = teacher_tokens(4, 260);
  engine::generate(sequence, prompt, options);
  ASSERT_EQ(seen.size(), 6u);
  const RunStats& stats = sequence.stats();
  EXPECT_EQ(stats.decode_tokens, 5);
  EXPECT_NEAR(stats.decode_s, std::chrono::duration<double>(seen.back() - seen.front()).count(),
              0.01);
  EXPECT_GE(stats.decode_s, 5 * 0.02);
}

struct Recorder : OpScopeSink {
  std::vector<std::string> ops;
  Cost total;
  int open = 0;
  void begin(const OpTag& tag, const Cost& cost) override {
    ops.push_back(tag.op);
    total += cost;
    ++open;
  }
  void end() override { --open; }
};

TEST(Cost, ScopesOfAStepSumToItsCost) {
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  Recorder recorder;
  engine->runner().set_sink(&recorder);
  sequence.step(1);
  engine->runner().set_sink(nullptr);
  EXPECT_EQ(recorder.open, 0);
  EXPECT_EQ(recorder.ops.size(), 1u + 5 * 2 + 1);
  EXPECT_EQ(recorder.ops.front(), "embed");
  EXPECT_EQ(recorder.ops.back(), "norm_head");
  const Cost expected = engine->step_cost(0, 1, 1);
  EXPECT_EQ(recorder.total.weight_bytes, expected.weight_bytes);
  EXPECT_EQ(recorder.total.flops_useful, expected.flops_useful);
}

TEST(Engine, RefusesWhatDoesNotFitBeforeLoading) {
  OpenOptions options = options_for(best_cpu());
  options.n_ctx = 1 << 24;
  options.max_sequences = 4096;
  bool loading = false;
  options.on_progress = [&](double) { loading = true; };
  EXPECT_THAT(error_of(ErrorCode::out_of_memory, [&] { open_tiny("llama_plain", options); }),
              testing::AllOf(HasSubstr("MB are available"), HasSubstr("-c")));
  EXPECT_FALSE(loading);
}

TEST(Engine, PlanEqualsWhatIsAllocated) {
  for (const int page_tokens : {0, 64}) {
    OpenOptions options = options_for(best_cpu());
    options.page_tokens = page_tokens;
    const auto engine = open_tiny("llama_bias", options);
    EXPECT_EQ(engine->memory().cache_bytes, engine->cache().allocated_bytes());
  }
}

TEST(Engine, RefusesOptionsByName) {
  const auto refusal = [](ErrorCode code, auto change) {
    OpenOptions options = options_for(best_cpu());
    change(options);
    return error_of(code, [&] { open_tiny("llama_plain", options); });
  };
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.isa = "avx9"; }), HasSubstr("avx9"));
  EXPECT_THAT(refusal(ErrorCode::unavailable, [](auto& o) { o.backend = "nosuch"; }),
              HasSubstr("nosuch"));
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.backend = "reference"; }),
              HasSubstr("isa"));
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.page_tokens = 8; }), HasSubstr("page"));
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.n_ubatch = -1; }), HasSubstr("ubatch"));
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.threads = -1; }), HasSubstr("threads"));
  EXPECT_THAT(refusal(ErrorCode::usage, [](auto& o) { o.n_ctx = -5; }), HasSubstr("context"));
}

TEST(Generate, StopsForEachReason) {
  OpenOptions options = options_for(best_cpu());
  options.n_ctx = 40;
  const auto engine = open_tiny("llama_plain", options);
  const std::vector<int32_t> prompt = teacher_tokens(8, 256);
  GenerateOptions generate;
  generate.ignore_end_of_generation = true;
  const auto run = [&] {
    engine::Sequence sequence(engine);
    return engine::generate(sequence, prompt, generate);
  };
  const GenerateResult full = run();
  EXPECT_EQ(full.reason, StopReason::context_full);
  EXPECT_EQ(full.tokens.size(), 33u);  // the last one is sampled, not stepped

  generate.max_tokens = 7;
  const GenerateResult seven = run();
  EXPECT_EQ(seven.reason, StopReason::max_tokens);
  EXPECT_THAT(seven.tokens, testing::ElementsAreArray(full.tokens.data(), 7));
  EXPECT_TRUE(full.text.starts_with(seven.text.substr(0, 3)));

  ASSERT_GE(full.text.size(), 12u);
  generate.max_tokens = -1;
  generate.stop = {full.text.substr(8, 4)};
  const GenerateResult stopped = run();
  EXPECT_EQ(stopped.reason, StopReason::stop_string);
  EXPECT_EQ(stopped.text, full.text.substr(0, full.text.find(generate.stop[0])));

  generate.stop.clear();
  std::string streamed;
  generate.on_text = [&](std::string_view text) {
    streamed += text;
    return streamed.size() < 6;
  };
  EXPECT_EQ(run().reason, StopReason::callback);
  EXPECT_LT(streamed.size(), full.text.size());
  generate.on_text = {};

  std::atomic<bool> cancel{true};
  generate.cancel = &cancel;
  error_of(ErrorCode::cancelled, run);
}

TEST(Generate, NeedsAPrompt) {
  const auto engine = open_tiny();
  engine::Sequence sequence(engine);
  error_of(ErrorCode::usage, [&] { engine::generate(sequence, {}, {}); });
}

TEST(LogitsHash, SeesEveryBit) {
  std::vector<float> logits(1003, 1.0f);
  const uint64_t base = engine::logits_hash(logits);
  for (const size_t at : {0u, 1u, 15u, 16u, 999u, 1002u}) {
    logits[at] = -1.0f;
    EXPECT_NE(engine::logits_hash(logits), base) << at;
    logits[(at + 16) % 1003] = -1.0f;  // two sign flips do not cancel
    EXPECT_NE(engine::logits_hash(logits), base) << at;
    logits[(at + 16) % 1003] = logits[at] = 1.0f;
  }
  std::swap(logits[3] = 2.0f, logits[19]);
  const uint64_t swapped = engine::logits_hash(logits);
  std::swap(logits[3], logits[19]);
  EXPECT_NE(engine::logits_hash(logits), swapped);
}

}  // namespace
}  // namespace fathom::test

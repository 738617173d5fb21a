// SPDX-License-Identifier: Apache-2.0
// How a GPU decodes: one graph launch a token and nothing else, as the driver itself counts it,
// whatever is drawn and however deep; text that does not depend on the way; ends of text. Skips
// where no GPU can be used.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/driver_calls.hpp"
#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "engine/generate.hpp"
#include "kernels/sample/sample.hpp"
#include "tests/support/engines.hpp"
#include "tests/support/tiny_synth.hpp"

namespace fathom::test {
namespace {

using cuda::DriverCallCounter;
using cuda::DriverCalls;
using engine::DecodeBatch;
using engine::DecodeLoop;
using engine::Engine;
using engine::Sequence;

constexpr int64_t kVocab = 2048;
constexpr int64_t kTokens = 1024;

struct Sampler {
  const char* name;
  SamplerParams params;
};
const Sampler kSamplers[] = {
    {"greedy", {}},
    {"temperature", {.temperature = 0.8f, .seed = 1}},
    {"top_k_top_p", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 2}},
    {"top_p_of_many", {.temperature = 3.0f, .top_p = 0.95f, .seed = 3}},
    {"all",
     {.temperature = 0.9f,
      .top_k = 100,
      .top_p = 0.9f,
      .min_p = 0.01f,
      .repeat_penalty = 1.2f,
      .repeat_last_n = -1,
      .seed = 4}}};

class CudaDecode : public testing::Test {
 protected:
  void SetUp() override {
    try {
      load_backend("cuda", "").device->info();
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  static OpenOptions options(int max_sequences = 1) {
    OpenOptions out;
    out.backend = "cuda";
    out.n_ctx = 2048;
    out.max_sequences = max_sequences;
    return out;
  }
  static std::shared_ptr<Engine> open(const OpenOptions& options) {
    convert::SynthOptions model;
    model.shape = "qwen2.5-0.5b";
    model.type = "q4_k_m";
    model.n_layers = 2;
    model.vocab_size = kVocab;
    return Engine::open(tiny_synth(model), options);
  }
  static std::unique_ptr<Sequence> prompted(const std::shared_ptr<Engine>& engine, int64_t n = 20) {
    auto out = std::make_unique<Sequence>(engine);
    out->prefill(teacher_tokens(n, kVocab), LogitsMode::last);
    return out;
  }
};

class CudaLaunches : public CudaDecode {
 protected:
  void SetUp() override {
    CudaDecode::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!DriverCallCounter::available()) GTEST_SKIP() << "built without CUPTI";
    counter_.emplace();
  }
  void expect_graphs_only(int64_t n, const char* what) {
    const DriverCalls calls = counter_->take();
    EXPECT_EQ(calls.graph_launches, n) << what;
    EXPECT_EQ(calls.kernel_launches, 0) << what;
    EXPECT_EQ(calls.copies, 0) << what;
    EXPECT_EQ(calls.captures, 0) << what;
  }
  std::optional<DriverCallCounter> counter_;
};

TEST_F(CudaLaunches, ATokenIsOneGraphLaunchHoweverItIsDrawn) {
  const auto engine = open(options());
  for (const Sampler& s : kSamplers) {
    const auto sequence = prompted(engine);
    constexpr int kWarm = 4;
    DecodeLoop loop(*sequence, s.params, {}, kWarm + kTokens + 1);
    for (int i = 0; i <= kWarm; ++i) loop.next();
    counter_->take();
    const StepCounters before{engine->runner().captures(), engine->runner().replays(),
                              engine->runner().kernel_launches()};
    for (int64_t i = 0; i < kTokens; ++i) loop.next();
    expect_graphs_only(kTokens, s.name);
    EXPECT_EQ(engine->runner().captures(), 1) << s.name;
    EXPECT_EQ(engine->runner().replays() - before.graph_replays, kTokens);
    EXPECT_EQ(engine->runner().kernel_launches(), before.kernel_launches);
  }
}

TEST_F(CudaLaunches, AStepWithAGivenTokenIsOneGraphLaunch) {
  const auto engine = open(options());
  const auto sequence = prompted(engine);
  sequence->step(1);
  counter_->take();
  for (int32_t i = 0; i < kTokens; ++i) sequence->step(i);
  expect_graphs_only(kTokens, "without sampling");
  sequence->truncate(100);
  sequence->step(1);
  sequence->sample(kSamplers[4].params, {});
  sequence->step(1);
  counter_->take();
  for (int64_t i = 0; i < kTokens; ++i) {
    sequence->step(sequence->sample(kSamplers[4].params, {}));
  }
  expect_graphs_only(kTokens, "step and sample in turn");
}

// What the engine counts is what the driver sees.
TEST_F(CudaLaunches, TheEnginesCountersAreTheDrivers) {
  const auto engine = open(options());
  counter_->take();
  const int64_t before = engine->runner().kernel_launches();
  const auto sequence = prompted(engine);
  const DriverCalls calls = counter_->take();
  EXPECT_GT(calls.kernel_launches, 10);
  EXPECT_EQ(engine->runner().kernel_launches() - before, calls.kernel_launches);
  EXPECT_EQ(calls.graph_launches, 0) << "a prompt runs op by op";
}

TEST_F(CudaLaunches, SequencesJoinAndLeaveWithoutACapture) {
  const auto engine = open(options(32));
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<int32_t> next;
  for (int i = 0; i < 32; ++i) {
    sequences.push_back(prompted(engine, 3 + i));
    next.push_back(sequences.back()->sample(kSamplers[i % 5].params, {}));
  }
  const auto step = [&](size_t first, size_t n) {
    std::vector<DecodeBatch::Entry> batch;
    for (size_t i = first; i < first + n; ++i) {
      batch.push_back({sequences[i % 32].get(), next[i % 32]});
    }
    DecodeBatch::step(*engine, batch, LogitsMode::last);
    for (size_t i = first; i < first + n; ++i) {
      next[i % 32] = sequences[i % 32]->sample(kSamplers[i % 32 % 5].params, {});
    }
  };
  constexpr size_t kBatches[] = {1, 3, 9, 17, 32};
  for (const size_t n : kBatches) step(0, n);
  const int64_t captures = engine->runner().captures();
  counter_->take();
  int64_t n_steps = 0;
  for (size_t round = 0; round < 20; ++round) {
    for (const size_t n : kBatches) {
      step(round * 7, n);
      ++n_steps;
    }
  }
  expect_graphs_only(n_steps, "batches");
  EXPECT_EQ(engine->runner().captures(), captures);
  sequences[5] = nullptr;  // leaves for good, and another comes
  sequences[5] = prompted(engine, 40);
  next[5] = sequences[5]->sample(kSamplers[3].params, {});
  counter_->take();
  for (const size_t n : kBatches) step(3, n);
  const DriverCalls calls = counter_->take();
  EXPECT_EQ(calls.captures, 0);
  EXPECT_EQ(calls.graph_launches, 5);
}

// Of FATHOM_GAP_MODEL, or of a model whose steps are too short to say much: what a token takes in
// the loop, and what it takes where the host submits ahead as far as it may and reads nothing.
TEST_F(CudaDecode, TheDeviceDoesNotWaitForTheHost) {
  const char* path = std::getenv("FATHOM_GAP_MODEL");
  const auto engine = path ? Engine::open(path, options()) : open(options());
  using Clock = std::chrono::steady_clock;
  const auto us_each = [](Clock::time_point start, int64_t n) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
           static_cast<double>(n);
  };
  for (const Sampler& s : kSamplers) {
    Sequence sequence(engine);
    sequence.prefill(teacher_tokens(20, 1000), LogitsMode::last);
    double loop_us = 0;
    {
      DecodeLoop loop(sequence, s.params, {}, kTokens + 4);
      for (int i = 0; i < 4; ++i) loop.next();
      const auto start = Clock::now();
      for (int64_t i = 0; i < kTokens; ++i) loop.next();
      loop_us = us_each(start, kTokens);
    }
    engine->runner().synchronize();
    sequence.truncate(23);
    const auto start = Clock::now();
    for (int64_t i = 0; i < kTokens; ++i) {
      engine->cache().append(0, 1);
      const engine::StepRow row{engine::kNewestToken, static_cast<int32_t>(23 + i), 0};
      const int32_t out_row = 0;
      const DrawRequest draw{.seed = s.params.seed,
                             .position = row.pos + 1,
                             .temperature = s.params.temperature,
                             .top_p = s.params.top_p,
                             .min_p = s.params.min_p,
                             .repeat_penalty = s.params.repeat_penalty,
                             .top_k = s.params.top_k,
                             .repeat_last_n = s.params.repeat_last_n,
                             .is_wanted = 1};
      engine->run({&row, 1}, {&out_row, 1}, {&draw, 1});
    }
    engine->runner().synchronize();
    const double ahead_us = us_each(start, kTokens);
    engine->cache().truncate(0, 23);
    std::printf("%s: %.1f us a token, %.1f submitted ahead, %.2f %% more\n", s.name, loop_us,
                ahead_us, 100 * (loop_us / ahead_us - 1));
    if (path) {
      EXPECT_LT(loop_us, 1.02 * ahead_us) << s.name;
    }
  }
}

// The share of the time from the first token to the last in which no graph runs, as CUPTI sees it.
// One kernel multiplies for several ops, with more shared memory for one than for the next.
TEST_F(CudaDecode, EveryLaunchOfAStepSaysHowManyBlocksFit) {
  Sequence sequence(open(options()));
  sequence.prefill(teacher_tokens(20, kVocab), LogitsMode::skip);
  const std::vector<KernelLaunch> launches =
      load_backend("cuda", "").device->watch_launches([&] { sequence.step(1); });  // op by op
  ASSERT_GT(launches.size(), 10u);
  for (const KernelLaunch& launch : launches) {
    EXPECT_GT(launch.blocks_per_sm, 0) << launch.kernel << " with " << launch.shared_bytes;
    EXPECT_GT(launch.occupancy, 0) << launch.kernel;
    EXPECT_GT(launch.waves, 0) << launch.kernel;
  }
}

TEST_F(CudaDecode, GraphsFollowEachOther) {
  if (!DriverCallCounter::available()) GTEST_SKIP() << "built without CUPTI";
  cuda::GraphTrace trace;
  const char* path = std::getenv("FATHOM_GAP_MODEL");
  const auto engine = path ? Engine::open(path, options()) : open(options());
  for (const Sampler& s : kSamplers) {
    Sequence sequence(engine);
    sequence.prefill(teacher_tokens(20, 1000), LogitsMode::last);
    DecodeLoop loop(sequence, s.params, {}, kTokens + 4);
    for (int i = 0; i < 4; ++i) loop.next();
    trace.take();
    for (int64_t i = 0; i < kTokens; ++i) loop.next();
    engine->runner().synchronize();
    const cuda::GraphTimes times = trace.take();
    ASSERT_GE(times.n_graphs, kTokens);
    const double n = static_cast<double>(times.n_graphs), gap = 1 - times.busy_ns / times.span_ns;
    std::printf("%s: %.1f us a graph, %.1f from one to the next, gap %.2f %%\n", s.name,
                times.busy_ns / 1e3 / n, times.span_ns / 1e3 / n, 100 * gap);
    if (path) {
      EXPECT_LT(gap, 0.02) << s.name;
    }
  }
}

struct NoSink : OpScopeSink {
  void begin(const OpTag&, const Cost&) override {}
  void end() override {}
};

struct Text {
  std::vector<int32_t> tokens;
  uint64_t hash = 0;
  bool operator==(const Text&) const = default;
};

Text generated(const std::shared_ptr<Engine>& engine, const SamplerParams& params, int64_t n) {
  Sequence sequence(engine);
  GenerateOptions options;
  options.max_tokens = n;
  options.ignore_end_of_generation = true;
  options.sampler = params;
  options.logit_bias = {{9, 1.0f}, {5, -2.0f}, {9, 0.5f}};
  Text out;
  out.tokens = engine::generate(sequence, teacher_tokens(20, kVocab), options).tokens;
  out.hash = sequence.stats().logits_hash;
  return out;
}

TEST_F(CudaDecode, TextDoesNotDependOnTheWay) {
  const auto engine = open(options());
  for (const Sampler& s : kSamplers) {
    const Text text = generated(engine, s.params, 100);
    EXPECT_EQ(generated(engine, s.params, 100), text) << s.name << ", again";
    NoSink sink;
    engine->runner().set_sink(&sink);
    EXPECT_EQ(generated(engine, s.params, 100), text) << s.name << ", op by op";
    engine->runner().set_sink(nullptr);
    OpenOptions paged = options();
    paged.page_tokens = 16;
    EXPECT_EQ(generated(open(paged), s.params, 100), text) << s.name << ", in pages";
  }
}

// The host draws from the device's logits what the device drew.
TEST_F(CudaDecode, TheHostDrawsTheSameTextFromTheSameLogits) {
  const auto engine = open(options());
  const std::vector<LogitBias> bias = {{9, 1.0f}, {5, -2.0f}, {9, 0.5f}};
  std::vector<std::byte> memory(
      static_cast<size_t>(workspace_bytes_cpu(SampleArgs::Static{kVocab})));
  for (const Sampler& s : kSamplers) {
    const Text text = generated(engine, s.params, 200);
    Sequence sequence(engine);
    sequence.prefill(teacher_tokens(20, kVocab), LogitsMode::last);
    uint64_t hash = 0;
    for (const int32_t expected : text.tokens) {
      hash = engine::logits_hash(sequence.logits(), hash);
      ExecContext host;
      host.workspace = {memory.data(), static_cast<int64_t>(memory.size())};
      int32_t token = -1;
      sample_ref(host, {{kVocab},
                        &s.params,
                        bias,
                        sequence.tokens(),
                        sequence.size(),
                        sequence.logits().data(),
                        &token});
      ASSERT_EQ(token, expected) << s.name << ", position " << sequence.size();
      sequence.step(token);
    }
    EXPECT_EQ(hash, text.hash) << s.name;
  }
}

TEST_F(CudaDecode, TextsEndAndGoOn) {
  const auto engine = open(options());
  const Text whole = generated(engine, kSamplers[2].params, 60);
  Sequence sequence(engine);
  GenerateOptions options;
  options.ignore_end_of_generation = true;
  options.sampler = kSamplers[2].params;
  options.logit_bias = {{9, 1.0f}, {5, -2.0f}, {9, 0.5f}};
  std::vector<int32_t> prompt = teacher_tokens(20, kVocab), tokens;
  for (const int64_t n : {1, 2, 7, 50}) {
    options.max_tokens = n;
    const GenerateResult part = engine::generate(sequence, prompt, options);
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    prompt = {tokens.back()};
  }
  EXPECT_EQ(tokens, whole.tokens);

  std::atomic<bool> cancel{false};
  int n_left = 10;
  options.max_tokens = 1000;
  options.cancel = &cancel;
  options.on_text = [&](std::string_view) {
    cancel = --n_left == 0;
    return true;
  };
  try {
    engine::generate(sequence, prompt, options);
    ADD_FAILURE() << "it was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(engine->cache().length(0), sequence.size());
  sequence.truncate(0);
  options = {};
  options.max_tokens = 60;
  options.ignore_end_of_generation = true;
  options.sampler = kSamplers[2].params;
  options.logit_bias = {{9, 1.0f}, {5, -2.0f}, {9, 0.5f}};
  EXPECT_EQ(engine::generate(sequence, teacher_tokens(20, kVocab), options).tokens, whole.tokens);
}

}  // namespace
}  // namespace fathom::test

// SPDX-License-Identifier: Apache-2.0
// The engine on a device whose memory the host cannot touch and whose stream runs when it is waited
// for (support/dummy_backend/guarded_backend.cpp): the logits are those of the reference backend
// bit for bit, decode steps are captured once per bucket, and everything is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/backend_loader.hpp"
#include "engine/generate.hpp"
#include "engine/step_graph.hpp"
#include "tests/support/engines.hpp"

namespace fathom::test {
namespace {

using engine::DecodeBatch;
using engine::Engine;
using engine::Sequence;
using engine::StepGraph;

constexpr int64_t kVocab = 260;
constexpr int64_t kTokens = 40;

TEST(StepGraph, BucketsGrowByDoublingThenByThirtyTwo) {
  constexpr std::pair<int64_t, int64_t> kExpected[] = {{1, 1},   {2, 2},   {3, 4},   {5, 8},
                                                       {9, 16},  {17, 32}, {32, 32}, {33, 64},
                                                       {64, 64}, {65, 96}, {97, 100}};
  for (const auto& [n_rows, padded] : kExpected) {
    EXPECT_EQ(StepGraph::bucket(n_rows, 100), padded) << n_rows;
  }
  EXPECT_EQ(StepGraph::bucket(3, 3), 3) << "no bucket is larger than a step may be";
}

// The parameter is the backend.
class GuardedDevice : public testing::TestWithParam<std::string> {
 protected:
  static OpenOptions options(const std::string& backend, int max_sequences = 1) {
    OpenOptions out = options_for({backend, ""});
    out.backend_dir = FATHOM_TEST_BACKENDS;
    out.n_ctx = 128;
    out.max_sequences = max_sequences;
    out.page_tokens = 16;
    return out;
  }
  static std::shared_ptr<Engine> open(const OpenOptions& options,
                                      const std::string& model = "qwen3_qk_norm") {
    return Engine::open(fixture(model + ".gguf"), options);
  }
  std::shared_ptr<Engine> open_guarded(int max_sequences = 1) const {
    return open(options(GetParam(), max_sequences));
  }
  static std::shared_ptr<Engine> open_reference(int max_sequences = 1) {
    return open(options("reference", max_sequences));
  }
  bool has_graphs() const { return GetParam() == "guarded"; }

  static std::vector<uint64_t> decode(const std::shared_ptr<Engine>& engine) {
    Sequence sequence(engine);
    return decode_hashes(sequence, teacher_tokens(kTokens, kVocab));
  }
  static const std::vector<uint64_t>& expected() {
    static const std::vector<uint64_t> kHashes = decode(open_reference());
    return kHashes;
  }
};

TEST_P(GuardedDevice, MemoryIsOutOfTheHostsReach) {
  const auto engine = open_guarded();
  const volatile int32_t* page = engine->cache().page_table();
  EXPECT_DEATH(static_cast<void>(*page), "");
}

TEST_P(GuardedDevice, ChunksAreTheBackendsUnlessTheUserSays) {
  OpenOptions given = options(GetParam());
  given.n_ctx = 1024;
  given.n_ubatch = 0;
  EXPECT_EQ(open(given)->limits().max_rows, has_graphs() ? 24 : 512);
  given.n_ubatch = 40;
  EXPECT_EQ(open(given)->limits().max_rows, 40);
}

TEST_P(GuardedDevice, DecodeOfEveryFamilyEqualsTheReference) {
  for (const std::string& model : tiny_models()) {
    EXPECT_EQ(decode(open(options(GetParam()), model)), decode(open(options("reference"), model)))
        << model;
  }
}

TEST_P(GuardedDevice, PrefillWithAllLogitsEqualsDecode) {
  for (const int chunk : {1, 7, 64}) {
    for (const int logits_rows : {3, 64}) {
      OpenOptions given = options(GetParam());
      given.n_ubatch = chunk;
      given.max_logits_rows = logits_rows;
      const auto engine = open(given);
      Sequence sequence(engine);
      EXPECT_EQ(prefill_hashes(sequence, teacher_tokens(kTokens, kVocab)), expected())
          << "chunk " << chunk << ", " << logits_rows << " rows of logits";
    }
  }
}

// Nobody reads anything between the chunks: a chunk's rows must not overwrite those of the chunk
// before, whose copy may still be on its way.
TEST_P(GuardedDevice, ChunksWithoutLogitsDoNotMeet) {
  OpenOptions given = options(GetParam());
  given.n_ubatch = 7;
  const auto engine = open(given);
  Sequence sequence(engine);
  sequence.prefill(teacher_tokens(kTokens, kVocab), LogitsMode::last);
  EXPECT_EQ(engine::logits_hash(sequence.logits()), expected().back());
}

TEST_P(GuardedDevice, TruncatedSequencesGoOn) {
  const auto engine = open_guarded();
  const std::vector<int32_t> tokens = teacher_tokens(kTokens, kVocab);
  Sequence sequence(engine);
  sequence.prefill(std::span(tokens).first(10), LogitsMode::skip);
  sequence.prefill(std::span(tokens).first(30), LogitsMode::skip);
  sequence.truncate(10);
  EXPECT_EQ(decode_hashes(sequence, std::span(tokens).subspan(10)),
            std::vector<uint64_t>(expected().begin() + 10, expected().end()));
}

// Hashes of all logits of batches that sequences of different lengths join and leave.
std::vector<uint64_t> batches(const std::shared_ptr<Engine>& engine) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<uint64_t> out;
  uint32_t token = 1;
  const auto step = [&](size_t first, size_t n) {
    std::vector<DecodeBatch::Entry> batch;
    for (size_t i = first; i < first + n; ++i) {
      token = token * 1664525u + 1013904223u;
      batch.push_back({sequences[i].get(), static_cast<int32_t>((token >> 8) % kVocab)});
    }
    DecodeBatch::step(*engine, batch, LogitsMode::last);
    for (const DecodeBatch::Entry& entry : batch) {
      out.push_back(engine::logits_hash(entry.sequence->logits()));
    }
  };
  for (int i = 0; i < 9; ++i) {
    sequences.push_back(std::make_unique<Sequence>(engine));
    sequences.back()->prefill(teacher_tokens(1 + 7 * i, kVocab), LogitsMode::skip);
  }
  for (const size_t n : {1, 2, 3, 4, 5, 9, 3, 1}) {
    for (int repeat = 0; repeat < 3; ++repeat) step(9 - n, n);
  }
  sequences[4]->truncate(3);
  step(0, 9);
  sequences.erase(sequences.begin() + 2, sequences.begin() + 5);
  step(0, 6);
  step(2, 3);
  return out;
}

TEST_P(GuardedDevice, BatchesEqualTheReference) {
  const auto engine = open_guarded(9);
  EXPECT_EQ(batches(engine), batches(open_reference(9)));
  // Buckets 1, 2, 4, 8 and 16; bucket 1 without logits too, for the prompt of one token.
  EXPECT_EQ(engine->runner().captures(), has_graphs() ? 6 : 0);
}

TEST_P(GuardedDevice, NothingIsCapturedAfterABucketsFirstStep) {
  const auto engine = open_guarded();
  Sequence sequence(engine);
  sequence.prefill(teacher_tokens(5, kVocab), LogitsMode::last);
  EXPECT_EQ(engine->runner().captures(), 0);
  sequence.step(1);
  const int64_t captures = engine->runner().captures();
  EXPECT_EQ(captures, has_graphs() ? 1 : 0);
  constexpr int kSteps = 100;
  for (int i = 0; i < kSteps; ++i) sequence.step(i);
  EXPECT_EQ(engine->runner().captures(), captures);
  EXPECT_EQ(engine->runner().replays(), has_graphs() ? kSteps : 0);
}

struct CountingSink : OpScopeSink {
  void begin(const OpTag&, const Cost&) override { ++n_ops; }
  void end() override {}
  int n_ops = 0;
};

TEST_P(GuardedDevice, ASinkSeesEveryOpOfAStep) {
  const auto engine = open_guarded();
  Sequence sequence(engine);
  const std::vector<int32_t> tokens = teacher_tokens(4, kVocab);
  sequence.prefill(std::span(tokens).first(2), LogitsMode::skip);
  CountingSink sink;
  engine->runner().set_sink(&sink);
  sequence.step(tokens[2]);
  EXPECT_EQ(engine::logits_hash(sequence.logits()), expected()[2]);
  EXPECT_EQ(sink.n_ops, 2 + 5 * engine->info().n_layers + 1);
  engine->runner().set_sink(nullptr);
  EXPECT_EQ(engine->runner().captures(), 0);
  sequence.step(tokens[3]);
  EXPECT_EQ(engine::logits_hash(sequence.logits()), expected()[3]);
  EXPECT_EQ(sink.n_ops, 2 + 5 * engine->info().n_layers + 1);
}

// Names for what a replay runs: told once, and neither the numbers nor the way change.
TEST_P(GuardedDevice, ACaptureSinkSeesEveryOpOnceAndNoReplay) {
  const auto engine = open_guarded();
  CountingSink sink;
  engine->runner().set_capture_sink(&sink);
  EXPECT_EQ(decode(engine), expected());
  const int n_ops = 2 + 5 * engine->info().n_layers + 1;
  EXPECT_EQ(sink.n_ops, has_graphs() ? n_ops : 0);
  EXPECT_EQ(engine->runner().captures(), has_graphs() ? 1 : 0);
  EXPECT_EQ(engine->runner().replays(), has_graphs() ? kTokens - 1 : 0);
}

// A profiler that comes later: what was captured without names is captured anew, once.
TEST_P(GuardedDevice, ACaptureSinkThatComesLaterSeesTheStepsCapturedAnew) {
  const auto engine = open_guarded();
  EXPECT_EQ(decode(engine), expected());
  const int64_t captures = engine->runner().captures();
  CountingSink sink;
  engine->runner().set_capture_sink(&sink);
  EXPECT_EQ(decode(engine), expected());
  EXPECT_EQ(sink.n_ops, has_graphs() ? 2 + 5 * engine->info().n_layers + 1 : 0);
  EXPECT_EQ(engine->runner().captures(), 2 * captures);
}

TEST_P(GuardedDevice, ASampledTextEqualsTheReference) {
  GenerateOptions generate;
  generate.max_tokens = 30;
  generate.ignore_end_of_generation = true;
  generate.sampler.temperature = 0.9f;
  generate.sampler.top_p = 0.95f;
  generate.sampler.repeat_penalty = 1.1f;
  generate.sampler.seed = 7;
  generate.logit_bias = {{3, -1e9f}};
  const auto text = [&](const std::shared_ptr<Engine>& engine) {
    Sequence sequence(engine);
    const std::vector<int32_t> tokens =
        engine::generate(sequence, teacher_tokens(9, kVocab), generate).tokens;
    return std::pair(tokens, sequence.stats().logits_hash);
  };
  EXPECT_EQ(text(open_guarded()), text(open_reference()));
}

GenerateOptions drawing(const SamplerParams& params, int64_t n_tokens) {
  GenerateOptions out;
  out.max_tokens = n_tokens;
  out.ignore_end_of_generation = true;
  out.sampler = params;
  return out;
}

const SamplerParams kSamplers[] = {
    {},
    {.temperature = 0.9f, .seed = 3},
    {.temperature = 1.1f, .top_k = 20, .top_p = 0.9f, .repeat_penalty = 1.2f, .seed = 4},
    {.temperature = 2.0f, .min_p = 0.02f, .repeat_penalty = 0.8f, .repeat_last_n = -1}};

TEST_P(GuardedDevice, ATokenIsOneReplayHoweverItIsDrawn) {
  const auto engine = open_guarded(), reference = open_reference();
  constexpr int64_t kGenerated = 12;
  int64_t n_steps = 0;
  for (const SamplerParams& params : kSamplers) {
    for (const bool biased : {false, true}) {
      GenerateOptions options = drawing(params, kGenerated);
      if (biased) options.logit_bias = {{7, 2.0f}, {3, -1.0f}, {7, 1.5f}};
      const auto tokens = [&](const std::shared_ptr<Engine>& on) {
        Sequence sequence(on);
        return engine::generate(sequence, teacher_tokens(9, kVocab), options).tokens;
      };
      EXPECT_EQ(tokens(engine), tokens(reference));
      n_steps += kGenerated - 1;  // the first token is the prompt's
      EXPECT_EQ(engine->runner().captures(), has_graphs() ? 1 : 0);
      EXPECT_EQ(engine->runner().replays(), has_graphs() ? n_steps - 1 : 0);
    }
  }
}

// A step was under way when the text ended; what it left behind is nobody's.
TEST_P(GuardedDevice, ATextThatEndedGoesOn) {
  const auto run = [](const std::shared_ptr<Engine>& engine) {
    Sequence sequence(engine);
    GenerateOptions options = drawing(kSamplers[2], 40);
    int n_left = 3;
    options.on_text = [&](std::string_view) { return --n_left > 0; };
    std::vector<std::vector<int32_t>> out;
    std::vector<int32_t> prompt = teacher_tokens(9, kVocab);
    for (int part = 0; part < 3; ++part) {
      n_left = 3 + part;
      GenerateResult result = engine::generate(sequence, prompt, options);
      EXPECT_EQ(result.reason, StopReason::callback);
      EXPECT_EQ(engine->cache().length(0), sequence.size());
      prompt = {result.tokens.back()};
      out.push_back(std::move(result.tokens));
    }
    out.push_back(engine::generate(sequence, prompt, drawing(kSamplers[1], 1000)).tokens);
    EXPECT_EQ(sequence.remaining(), 0) << "until the context is full";
    return std::pair(out, sequence.stats().logits_hash);
  };
  EXPECT_EQ(run(open_guarded()), run(open_reference()));
}

// More steps of others than may be under way, between two tokens of a text.
TEST_P(GuardedDevice, OtherSequencesMayStepWhileATextIsMade) {
  const auto run = [](const std::shared_ptr<Engine>& engine) {
    Sequence sequence(engine), other(engine);
    GenerateOptions options = drawing(kSamplers[1], 20);
    options.on_text = [&](std::string_view) {
      for (int i = 0; i < 5; ++i) other.step(i);
      return true;
    };
    return engine::generate(sequence, teacher_tokens(9, kVocab), options).tokens;
  };
  EXPECT_EQ(run(open_guarded(2)), run(open_reference(2)));
}

// Each sequence of a batch draws as it was last asked to; they join, leave and change their minds.
TEST_P(GuardedDevice, BatchesDrawTheReferencesTokens) {
  const auto run = [](const std::shared_ptr<Engine>& engine) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<int32_t> out;
    for (int i = 0; i < 5; ++i) {
      sequences.push_back(std::make_unique<Sequence>(engine));
      sequences.back()->prefill(teacher_tokens(3 + i, kVocab), LogitsMode::last);
      out.push_back(sequences.back()->sample(kSamplers[i % 4], {}));
    }
    std::vector<int32_t> next(out);
    for (int step = 0; step < 12; ++step) {
      std::vector<DecodeBatch::Entry> batch;
      for (size_t i = 0; i < 5; ++i) {
        if (step % 3 == 0 || i != static_cast<size_t>(step) % 5) {
          batch.push_back({sequences[i].get(), next[i]});
        }
      }
      DecodeBatch::step(*engine, batch, LogitsMode::last);
      for (size_t i = 0; i < 5; ++i) {
        if (!sequences[i]->has_logits()) continue;
        const SamplerParams& params = kSamplers[(i + (step > 7 && i == 2)) % 4];
        next[i] = sequences[i]->sample(params, {});
        out.push_back(next[i]);
      }
    }
    for (const auto& sequence : sequences) out.push_back(sequence->stats().logits_hash & 0xffff);
    return out;
  };
  const auto engine = open_guarded(5);
  EXPECT_EQ(run(engine), run(open_reference(5)));
  EXPECT_LE(engine->runner().captures(), has_graphs() ? 2 : 0) << "buckets of four and five";
}

TEST_P(GuardedDevice, NothingToDrawIsSaidAsTheReferenceSaysIt) {
  const auto message = [](const std::shared_ptr<Engine>& engine) -> std::string {
    Sequence sequence(engine);
    GenerateOptions options = drawing({}, 5);
    for (int32_t token = 0; token < kVocab; ++token) {
      options.logit_bias.push_back({token, -std::numeric_limits<float>::infinity()});
    }
    try {
      engine::generate(sequence, teacher_tokens(4, kVocab), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(open_guarded()), message(open_reference()));
}

TEST_P(GuardedDevice, ASyntheticFillEqualsTheReference) {
  const auto filled = [](const std::shared_ptr<Engine>& engine) {
    Sequence sequence(engine);
    sequence.prefill(teacher_tokens(20, kVocab), LogitsMode::skip);
    sequence.fill_synthetic(60, 3);
    std::vector<uint64_t> out = decode_hashes(sequence, teacher_tokens(5, kVocab));
    // The penalty looks back at what the fill says the text was.
    const SamplerParams params{.temperature = 1, .repeat_penalty = 3, .repeat_last_n = -1};
    for (int i = 0; i < 5; ++i) {
      out.push_back(static_cast<uint64_t>(sequence.sample(params, {})));
      sequence.step(static_cast<int32_t>(out.back()));
    }
    return out;
  };
  EXPECT_EQ(filled(open_guarded()), filled(open_reference()));
}

// A step that was given up has copies and ops on the stream; the next one comes out right.
TEST_P(GuardedDevice, ACancelledPrefillLeavesNoTrace) {
  OpenOptions given = options(GetParam());
  given.n_ubatch = 4;
  const auto engine = open(given);
  const std::vector<int32_t> tokens = teacher_tokens(kTokens, kVocab);
  Sequence sequence(engine);
  sequence.prefill(std::span(tokens).first(3), LogitsMode::skip);
  struct Canceller : OpScopeSink {
    void begin(const OpTag&, const Cost&) override { cancel = ++n_ops >= 20; }
    void end() override {}
    std::atomic<bool> cancel{false};
    int n_ops = 0;
  } canceller;
  engine->runner().set_sink(&canceller);
  EXPECT_THROW(
      sequence.prefill(teacher_tokens(30, kVocab), LogitsMode::last, {}, &canceller.cancel), Error);
  engine->runner().set_sink(nullptr);
  sequence.truncate(3);
  EXPECT_EQ(decode_hashes(sequence, std::span(tokens).subspan(3)),
            std::vector<uint64_t>(expected().begin() + 3, expected().end()));
}

TEST_P(GuardedDevice, PlannedBytesAreAllocatedAndGivenBack) {
  const DeviceApi& device = *load_backend(GetParam(), FATHOM_TEST_BACKENDS).device;
  const int64_t free_bytes = device.info().free_bytes;
  {
    const auto engine = open_guarded();
    EXPECT_EQ(free_bytes - device.info().free_bytes, engine->memory().total_bytes());
    EXPECT_EQ(engine->memory().available_bytes, free_bytes);
    Sequence sequence(engine);
    sequence.step(1);
    EXPECT_EQ(free_bytes - device.info().free_bytes, engine->memory().total_bytes());
  }
  EXPECT_EQ(device.info().free_bytes, free_bytes);
}

TEST_P(GuardedDevice, AModelThatDoesNotFitIsRefusedWithTheDevicesName) {
  OpenOptions given = options(GetParam(), 4096);
  given.n_ctx = 1 << 16;
  bool loading = false;
  given.on_progress = [&](double) { loading = true; };
  try {
    open(given);
    ADD_FAILURE() << "it was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("MB on guarded device"),
                                             testing::HasSubstr("and 64 MB are available")));
  }
  EXPECT_FALSE(loading);
}

INSTANTIATE_TEST_SUITE_P(All, GuardedDevice, testing::Values("guarded", "guardedeager"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace fathom::test

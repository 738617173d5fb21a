// SPDX-License-Identifier: Apache-2.0
// Synthetic files are whole GGUF files with the right metadata, the same for any number of
// threads, and their tensors have the planned moments.
#include "convert/synth.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "gguf/gguf_file.hpp"
#include "kernels/quant/dequant_ref.hpp"

namespace fathom::convert {
namespace {

class TempFile {
 public:
  TempFile()
      : path_(fmt::format("{}fathom_synth_{}_{}.gguf", testing::TempDir(),
                          testing::UnitTest::GetInstance()->current_test_info()->name(),
                          ++count_)) {}
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static inline int count_ = 0;
  std::string path_;
};

SynthOptions tiny(const char* shape, const char* type) {
  SynthOptions options;
  options.shape = shape;
  options.type = type;
  return options;
}

std::vector<float> values_of(const gguf::File& file, const std::string& name) {
  const gguf::TensorInfo* tensor = file.find_tensor(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> values(tensor->n_elems);
  quant::dequantize_row(tensor->dtype(), file.data(*tensor).data(), values.data(),
                        static_cast<int64_t>(tensor->n_elems));
  return values;
}

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Synth, TinyShapesAreBelowAMegabyteAndOpen) {
  for (const char* shape :
       {"tiny-llama", "tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-kquant"}) {
    SCOPED_TRACE(shape);
    const bool kquant = std::string_view(shape) == "tiny-kquant";
    TempFile temp;
    const SynthResult result = synth(tiny(shape, kquant ? "q4_k_m" : "f32"), temp.path());
    EXPECT_EQ(std::filesystem::file_size(temp.path()), result.file_bytes);
    EXPECT_LT(result.file_bytes, 1'000'000u);
    const gguf::File file = gguf::File::open(temp.path());
    EXPECT_EQ(file.tensors().size(), static_cast<size_t>(result.n_tensors));
    EXPECT_EQ(file.tensor_bytes(), result.tensor_bytes);
    EXPECT_EQ(file.get_string("tokenizer.ggml.model"), "gpt2");
    EXPECT_EQ(file.array_strings("tokenizer.ggml.tokens").size(),
              file.find_tensor("token_embd.weight")->dims[1]);
  }
}

TEST(Synth, ShapesHaveThePublishedParameterCounts) {
  struct Published {
    const char* shape;
    uint64_t n_params;
  };
  for (const auto& [shape, n_params] :
       {Published{"smollm2-135m", 134'515'008}, Published{"qwen2.5-0.5b", 494'032'768},
        Published{"qwen2.5-7b", 7'615'616'512},
        Published{"llama-3.1-8b", 8'030'261'248 + 64},  // rope_freqs
        Published{"qwen3-8b", 8'190'735'360}}) {
    uint64_t sum = 0;
    for (const SynthTensor& tensor : plan_synth(tiny(shape, "f16")).tensors) {
      uint64_t n_elems = 1;
      for (const uint64_t dim : tensor.dims) n_elems *= dim;
      sum += n_elems;
    }
    EXPECT_EQ(sum, n_params) << shape;
  }
}

TEST(Synth, EveryTypeCanBeWrittenPure) {
  for (const DTypeInfo& info : all_dtypes()) {
    SCOPED_TRACE(info.name);
    TempFile temp;
    SynthOptions options = tiny("tiny-kquant", info.name);
    options.pure = true;
    synth(options, temp.path());
    const gguf::File file = gguf::File::open(temp.path());
    for (const gguf::TensorInfo& tensor : file.tensors()) {
      EXPECT_EQ(tensor.dtype(), tensor.n_dims == 2 ? info.type : DType::f32) << tensor.name;
    }
  }
}

TEST(Synth, SameSeedGivesSameBytesForAnyNumberOfThreads) {
  TempFile one, three, other;
  SynthOptions options = tiny("tiny-kquant", "q5_k_m");
  options.n_threads = 1;
  synth(options, one.path());
  options.n_threads = 3;
  synth(options, three.path());
  EXPECT_TRUE(one.bytes() == three.bytes());
  options.seed = 2;
  synth(options, other.path());
  EXPECT_FALSE(one.bytes() == other.bytes());
  EXPECT_EQ(one.bytes().size(), other.bytes().size());
}

TEST(Synth, MetadataHoldsTheHyperParameters) {
  TempFile temp;
  SynthOptions options = tiny("llama-3.1-8b", "q8_0");
  options.n_layers = 1;
  options.vocab_size = 600;
  options.n_ctx = 4096;
  synth(options, temp.path());
  const gguf::File file = gguf::File::open(temp.path());
  EXPECT_EQ(file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_u32("general.file_type"), 7u);
  EXPECT_EQ(file.get_u32("llama.block_count"), 1u);
  EXPECT_EQ(file.get_u32("llama.context_length"), 4096u);
  EXPECT_EQ(file.get_u32("llama.embedding_length"), 4096u);
  EXPECT_EQ(file.get_u32("llama.feed_forward_length"), 14336u);
  EXPECT_EQ(file.get_u32("llama.attention.head_count"), 32u);
  EXPECT_EQ(file.get_u32("llama.attention.head_count_kv"), 8u);
  EXPECT_EQ(file.get_u32("llama.attention.key_length"), 128u);
  EXPECT_EQ(file.get_u32("llama.rope.dimension_count"), 128u);
  EXPECT_EQ(file.get_f32("llama.rope.freq_base"), 5e5f);
  EXPECT_EQ(file.get_string("tokenizer.ggml.pre"), "llama-bpe");
  EXPECT_TRUE(file.get_bool("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(file.get_u32("tokenizer.ggml.bos_token_id"), 600u - 256);
}

TEST(Synth, Llama3RopeFactorsGoFromOneToEight) {
  TempFile temp;
  SynthOptions options = tiny("llama-3.1-8b", "q4_0");
  options.n_layers = 1;
  options.vocab_size = 600;
  synth(options, temp.path());
  const auto factors = values_of(gguf::File::open(temp.path()), "rope_freqs.weight");
  ASSERT_EQ(factors.size(), 64u);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors.back(), 8.0f);
  EXPECT_TRUE(std::is_sorted(factors.begin(), factors.end()));
  // By hand: dimension 29 turns 3.4108 times in 8192 positions, so it keeps (3.4108 - 1) / 3 of
  // its frequency, and 1 / (0.1964 / 8 + 0.8036) = 1.2075.
  EXPECT_EQ(factors[28], 1.0f);
  EXPECT_NEAR(factors[29], 1.2075, 1e-4);
  EXPECT_EQ(factors[35], 8.0f);
}

TEST(Synth, WeightsHaveThePlannedScale) {
  TempFile temp;
  const SynthOptions options = tiny("tiny-kquant", "q4_k_m");
  synth(options, temp.path());
  const gguf::File file = gguf::File::open(temp.path());
  for (const SynthTensor& tensor : plan_synth(options).tensors) {
    SCOPED_TRACE(tensor.name);
    auto values = values_of(file, tensor.name);
    values.resize(static_cast<size_t>(tensor.dims[0]) *
                  static_cast<size_t>(tensor.quiet_from_row));  // the loud rows
    const double planned = std::hypot(tensor.mean, tensor.sigma);
    EXPECT_NEAR(rms(values) / planned, 1.0, 0.05);
  }
}

TEST(Synth, ControlTokensAreQuietAndATiedHeadHasSignedNorm) {
  TempFile temp;
  synth(tiny("tiny-qwen2", "f16"), temp.path());
  const gguf::File file = gguf::File::open(temp.path());
  const auto embedding = values_of(file, "token_embd.weight");
  const std::span all(embedding);
  EXPECT_NEAR(rms(all.first(128 * 500)), 1.0, 0.02);
  EXPECT_NEAR(rms(all.last(128 * 12)), 0.25, 0.02);
  EXPECT_EQ(file.find_tensor("output.weight"), nullptr);
  int n_negative = 0;
  for (const float weight : values_of(file, "output_norm.weight")) n_negative += weight < 0;
  EXPECT_THAT(n_negative, testing::AllOf(testing::Gt(40), testing::Lt(88)));
}

TEST(Synth, ProgressEndsAtAllBytes) {
  TempFile temp;
  SynthOptions options = tiny("tiny-llama", "q8_0");
  uint64_t last = 0, total = 0;
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const SynthResult result = synth(options, temp.path());
  EXPECT_EQ(last, result.tensor_bytes);
  EXPECT_EQ(total, result.tensor_bytes);
}

TEST(Synth, BadOptionsAreUsageErrors) {
  const auto code_of = [](const SynthOptions& options) {
    try {
      plan_synth(options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of(tiny("no-such-model", "q4_0")), ErrorCode::usage);
  EXPECT_EQ(code_of(tiny("tiny-llama", "q7_x")), ErrorCode::usage);
  SynthOptions options = tiny("tiny-llama", "q4_0");
  options.n_layers = -3;
  EXPECT_EQ(code_of(options), ErrorCode::usage);
}

}  // namespace
}  // namespace fathom::convert

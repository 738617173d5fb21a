// SPDX-License-Identifier: Apache-2.0
// Metadata and data of a synthetic model. Tensor data is generated a few megabytes at a time by
// all threads and written in file order, so memory does not grow with the model.
#include "convert/synth.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "convert/random_blocks.hpp"
#include "convert/synth_vocab.hpp"
#include "gguf/gguf_writer.hpp"

namespace fathom::convert {
namespace {

constexpr int64_t kChunkBytes = 4 << 20;
constexpr int64_t kPieceBytes = 128 << 10;
constexpr uint32_t kQuantizationVersion = 2;

void add_hyper_parameters(const ModelShape& s, gguf::Writer& writer) {
  const auto key = [&](const char* name) { return fmt::format("{}.{}", s.arch, name); };
  const auto u32 = [&](const char* name, int64_t value) {
    writer.add_u32(key(name), static_cast<uint32_t>(value));
  };
  u32("block_count", s.n_layers);
  u32("context_length", s.n_ctx);
  u32("embedding_length", s.d_model);
  u32("feed_forward_length", s.d_ff);
  u32("attention.head_count", s.n_heads);
  u32("attention.head_count_kv", s.n_kv_heads);
  writer.add_f32(key("rope.freq_base"), s.rope_base);
  writer.add_f32(key("attention.layer_norm_rms_epsilon"), s.rms_eps);
  if (s.qk_norm || s.llama3_rope || s.n_heads * s.head_dim != s.d_model) {
    u32("attention.key_length", s.head_dim);
    u32("attention.value_length", s.head_dim);
  }
  if (std::string_view(s.arch) == "llama") {
    u32("rope.dimension_count", s.head_dim);
    u32("vocab_size", s.vocab_size);
  }
}

void add_tokenizer(const ModelShape& shape, gguf::Writer& writer) {
  const SynthVocab vocab = make_synth_vocab(shape);
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", shape.pre);
  writer.add_array("tokenizer.ggml.tokens", vocab.tokens);
  writer.add_array("tokenizer.ggml.token_type", vocab.types);
  writer.add_array("tokenizer.ggml.merges", vocab.merges);
  writer.add_u32("tokenizer.ggml.bos_token_id", vocab.bos_id);
  writer.add_u32("tokenizer.ggml.eos_token_id", vocab.eos_id);
  writer.add_bool("tokenizer.ggml.add_bos_token", shape.control.add_bos);
}

void add_metadata(const SynthPlan& plan, uint64_t seed, gguf::Writer& writer) {
  writer.add_string("general.architecture", plan.shape.arch);
  writer.add_string("general.type", "model");
  writer.add_string("general.name", fmt::format("{} {} synthetic, seed {}", plan.shape.name,
                                                plan.recipe.name, seed));
  writer.add_u32("general.file_type", plan.recipe.file_type);
  writer.add_u32("general.quantization_version", kQuantizationVersion);
  add_hyper_parameters(plan.shape, writer);
  add_tokenizer(plan.shape, writer);
}

// Llama 3.1: wavelengths beyond the trained context are stretched by 8, short ones are kept.
std::vector<float> rope_factors(const ModelShape& shape) {
  constexpr double kFactor = 8, kLowFactor = 1, kHighFactor = 4, kTrainedCtx = 8192;
  std::vector<float> factors;
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    const double frequency = std::pow(shape.rope_base, -2.0 * i / shape.head_dim);
    const double turns = kTrainedCtx * frequency / (2 * std::numbers::pi);
    const double keep = std::clamp((turns - kLowFactor) / (kHighFactor - kLowFactor), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - keep) / kFactor + keep)));
  }
  return factors;
}

std::vector<float> vector_values(const ModelShape& shape, const SynthTensor& tensor, uint64_t key) {
  if (tensor.fill == Fill::rope_factors) return rope_factors(shape);
  const WordStream words{key};
  const auto mean = static_cast<float>(tensor.mean);
  const auto half_width = static_cast<float>(tensor.sigma * std::sqrt(3.0));
  std::vector<float> values(tensor.dims[0]);
  for (uint64_t i = 0; i < values.size(); ++i) {
    const float value = mean + half_width * words.symmetric(2 * i);
    const bool negate = tensor.fill == Fill::signed_mean && (words(2 * i + 1) >> 63) != 0;
    values[i] = negate ? -value : value;
  }
  return values;
}

class DataWriter {
 public:
  DataWriter(const SynthOptions& options, const SynthPlan& plan, uint64_t total_bytes,
             gguf::Writer& writer)
      : options_(options),
        plan_(plan),
        total_bytes_(total_bytes),
        writer_(writer),
        pool_(options.n_threads ? ThreadPool::choose_threads(options.n_threads)
                                : std::min(4, ThreadPool::usable_cpus())) {}

  void run() {
    for (const SynthTensor& tensor : plan_.tensors) {
      const uint64_t key = tensor_key(options_.seed, tensor.name);
      if (tensor.fill != Fill::weights) {
        const std::vector<float> values = vector_values(plan_.shape, tensor, key);
        write(std::as_bytes(std::span(values)));
        continue;
      }
      const auto rows = static_cast<int64_t>(tensor.dims[1]);
      write_rows(tensor, key, 0, tensor.quiet_from_row, tensor.sigma);
      write_rows(tensor, key, tensor.quiet_from_row, rows, tensor.sigma / 4);
    }
  }

 private:
  void write_rows(const SynthTensor& tensor, uint64_t key, int64_t first_row, int64_t last_row,
                  double sigma) {
    if (first_row == last_row) return;
    const DTypeInfo& info = dtype_info(tensor.type);
    const BlockGenerator generator(tensor.type, key, sigma);
    const int64_t row_blocks = static_cast<int64_t>(tensor.dims[0]) / info.block_elems;
    const int64_t end = last_row * row_blocks;
    for (int64_t first = first_row * row_blocks; first < end;) {
      const int64_t n = std::min(end - first, kChunkBytes / info.block_bytes);
      chunk_.resize(static_cast<size_t>(n * info.block_bytes));
      generate(generator, info.block_bytes, first, n);
      write(chunk_);
      first += n;
    }
  }

  void generate(const BlockGenerator& generator, int64_t block_bytes, int64_t first, int64_t n) {
    Chunks pieces(n, kPieceBytes / block_bytes);
    auto work = [&](Team&) {
      for (int64_t begin, end; pieces.next(begin, end);) {
        generator.fill(first + begin, end - begin, chunk_.data() + begin * block_bytes);
      }
    };
    pool_.run(work);
  }

  void write(std::span<const std::byte> bytes) {
    writer_.write(bytes);
    done_bytes_ += bytes.size();
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const SynthOptions& options_;
  const SynthPlan& plan_;
  const uint64_t total_bytes_;
  gguf::Writer& writer_;
  ThreadPool pool_;
  std::vector<std::byte> chunk_;
  uint64_t done_bytes_ = 0;
};

}  // namespace

SynthResult synth(const SynthOptions& options, const std::string& path) {
  const SynthPlan plan = plan_synth(options);
  gguf::Writer writer;
  add_metadata(plan, options.seed, writer);
  SynthResult result{.file_bytes = 0,
                     .tensor_bytes = 0,
                     .n_params = 0,
                     .n_tensors = static_cast<int>(plan.tensors.size())};
  for (const SynthTensor& tensor : plan.tensors) {
    writer.add_tensor(tensor.name, tensor.type, tensor.dims);
    uint64_t n_elems = 1;
    for (const uint64_t dim : tensor.dims) n_elems *= dim;
    result.n_params += n_elems;
    result.tensor_bytes +=
        static_cast<uint64_t>(row_bytes(tensor.type, static_cast<int64_t>(n_elems)));
  }
  result.file_bytes = writer.file_bytes();
  writer.begin(path);
  DataWriter(options, plan, result.tensor_bytes, writer).run();
  writer.finish();
  return result;
}

}  // namespace fathom::convert

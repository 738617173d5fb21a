// SPDX-License-Identifier: Apache-2.0
// Writes random-weight GGUF models of known shapes: right in size, types and hyper-parameters for
// speed work, with weights scaled so that the model behaves (synth.cpp says how). The same
// options give the same bytes, whatever the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/model_shape.hpp"
#include "convert/recipe.hpp"
#include "tensor/dtype.hpp"

namespace fathom::convert {

// What a synthetic model promises, and the end-to-end tests check.
inline constexpr double kMinResidualRms = 0.1, kMaxResidualRms = 100;
inline constexpr double kMinLogitEntropy = 1, kMaxLogitEntropy = 8;  // nats
inline constexpr int kGreedyTokens = 256, kMinDistinctTokens = 100;

struct SynthOptions {
  std::string shape;            // a name of all_model_shapes()
  std::string type = "q4_k_m";  // a name that find_recipe() takes
  bool pure = false;            // the type for every matrix, without the mix of its name
  uint64_t seed = 1;
  int64_t vocab_size = 0;  // of these three, 0 keeps the shape's
  int n_layers = 0;
  int n_ctx = 0;
  int n_threads = 0;  // 0: one per usable CPU, at most 4
  // Called between chunks with the bytes of tensor data written so far and in all.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

enum class Fill {
  weights,       // random blocks
  around_mean,   // F32, uniform around mean
  signed_mean,   // the same with a random sign
  rope_factors,  // Llama 3.1's frequency divisors
};

struct SynthTensor {
  std::string name;
  TensorRole role;
  DType type;
  std::vector<uint64_t> dims;  // innermost first
  Fill fill;
  double mean;
  double sigma;
  int64_t quiet_from_row;  // rows from here on have a quarter of sigma: control tokens
};

struct SynthPlan {
  ModelShape shape;  // overrides applied
  Recipe recipe;
  std::vector<SynthTensor> tensors;  // in file order
};

SynthPlan plan_synth(const SynthOptions& options);

struct SynthResult {
  uint64_t file_bytes;
  uint64_t tensor_bytes;
  uint64_t n_params;
  int n_tensors;
};

// Throws Error{usage} for bad options and what gguf::Writer throws.
SynthResult synth(const SynthOptions& options, const std::string& path);

}  // namespace fathom::convert

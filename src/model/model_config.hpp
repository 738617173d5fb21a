// SPDX-License-Identifier: Apache-2.0
// The hyper-parameters of a model, read from a GGUF file and validated once. Every key of the
// model's architecture is either honoured, known not to matter, or refused by name: a model is
// never computed with a hyper-parameter missing.
#pragma once

#include <cstdint>
#include <string>

#include "gguf/gguf_file.hpp"
#include "model/families/family.hpp"
#include "model/rope_table.hpp"

namespace fathom {

struct ModelConfig {
  const Family* family = nullptr;
  std::string name;
  int n_layers = 0;
  int64_t d_model = 0, d_ff = 0, vocab_size = 0;
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float rms_eps = 0;
  float attn_scale = 0;
  int rope_dim = 0;
  RopeTable rope;
  int64_t n_ctx_train = 0;
  int64_t sliding_window = 0;  // 0 = none

  int64_t q_dim() const { return int64_t{n_heads} * head_dim; }
  int64_t kv_dim() const { return int64_t{n_kv_heads} * head_dim; }
};

// Throws Error{bad_file} for values outside their range, Error{unsupported} for what this build has
// no code for.
ModelConfig read_model_config(const gguf::File& file);

// Throws Error{unsupported} when a context of n_ctx tokens would need the sliding window.
void require_context(const ModelConfig& config, int64_t n_ctx);

}  // namespace fathom

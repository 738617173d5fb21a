// SPDX-License-Identifier: Apache-2.0
// The hyper-parameters of the models that synth can write: published ones, and tiny ones for
// tests that cover what the published ones do not (group sizes 1 to 8, q_dim apart from d_model).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fathom::convert {

struct ControlTokens {
  std::span<const char* const> names;  // from the first control id on; the rest are <|reserved_N|>
  const char* bos;
  const char* eos;
  bool add_bos;
};

struct ModelShape {
  const char* name;
  const char* arch;  // general.architecture
  const char* pre;   // tokenizer.ggml.pre
  int n_layers, d_model, d_ff;
  int n_heads, n_kv_heads, head_dim;
  int64_t vocab_size;
  int n_control;  // control and reserved tokens, at the end of the vocabulary
  int n_ctx;
  float rope_base, rms_eps;
  bool tied_head;    // no output.weight
  bool qkv_bias;     // attn_{q,k,v}.bias
  bool qk_norm;      // attn_{q,k}_norm.weight
  bool llama3_rope;  // rope_freqs.weight with Llama 3.1's factors
  ControlTokens control;
};

std::span<const ModelShape> all_model_shapes();
// Throws Error{usage} that lists the names.
const ModelShape& find_model_shape(std::string_view name);

}  // namespace fathom::convert

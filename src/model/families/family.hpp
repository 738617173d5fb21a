// SPDX-License-Identifier: Apache-2.0
// What sets one model family apart from another. All families here share one shape: RMS norms,
// grouped-query attention with rotary positions, a SwiGLU feed-forward block, residuals around
// both.
#pragma once

#include <span>

#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"

namespace fathom {

enum class Presence { absent, optional, required };

struct Family {
  const char* architecture;  // general.architecture
  RopePairs rope_pairs;
  Presence qkv_bias;
  Presence output_bias;  // of the attention output
  Presence ffn_down_bias;
  Presence qk_norm;     // per head, before the rotation
  Presence rope_freqs;  // divisors of the rotary frequencies (Llama 3)
};

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;

std::span<const Family* const> families();
// Null when no family has this name.
const Family* find_family(std::string_view architecture);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// A byte-level BPE vocabulary of any size: the 256 bytes in GPT-2's spelling and order, then
// tokens made by deterministic merges (syllables, words of two and three syllables, with and
// without a leading blank), then control tokens. It encodes any text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/model_shape.hpp"

namespace fathom::convert {

// tokenizer.ggml.token_type
inline constexpr int32_t kNormalToken = 1;
inline constexpr int32_t kControlToken = 3;

struct SynthVocab {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;  // "left right", both in tokens
  uint32_t bos_id, eos_id;
  int64_t n_text;  // control tokens start here
};

// Throws Error{usage} when the shape's vocabulary is too small or too large.
SynthVocab make_synth_vocab(const ModelShape& shape);

}  // namespace fathom::convert

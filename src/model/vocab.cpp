// SPDX-License-Identifier: Apache-2.0
// Reads the keys tokenizer.ggml.* (GGUF specification). What they mean is checked by the tokenizer.
#include "model/vocab.hpp"

#include <algorithm>
#include <cctype>

#include "text/vocab_error.hpp"

namespace fathom {
namespace {

// Phi-3's tokenizer drops white space after its control tokens; no key of the file says so.
bool is_phi3(const gguf::File& file) {
  std::string name(file.try_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

text::VocabData vocab_from_gguf(const gguf::File& file) {
  text::VocabData vocab;
  vocab.model = file.get_string("tokenizer.ggml.model");
  if (const auto pre = file.try_string("tokenizer.ggml.pre")) vocab.pre = std::string(*pre);
  vocab.tokens = file.array_strings("tokenizer.ggml.tokens");
  const auto take = [](auto& to, auto from) {
    if (from) to = std::move(*from);
  };
  take(vocab.scores, file.try_array_f32("tokenizer.ggml.scores"));
  take(vocab.types, file.try_array_i32("tokenizer.ggml.token_type"));
  take(vocab.merges, file.try_array_strings("tokenizer.ggml.merges"));

  const std::pair<const char*, int64_t text::VocabData::*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &text::VocabData::bos},
      {"tokenizer.ggml.eos_token_id", &text::VocabData::eos},
      {"tokenizer.ggml.unknown_token_id", &text::VocabData::unk},
      {"tokenizer.ggml.seperator_token_id", &text::VocabData::sep},  // spelt so in the format
      {"tokenizer.ggml.padding_token_id", &text::VocabData::pad},
      {"tokenizer.ggml.eot_token_id", &text::VocabData::eot},
      {"tokenizer.ggml.eom_token_id", &text::VocabData::eom}};
  for (const auto& [key, member] : ids) {
    if (const auto id = file.try_u32(key)) vocab.*member = *id;
  }
  vocab.add_bos = file.try_bool("tokenizer.ggml.add_bos_token");
  vocab.add_eos = file.try_bool("tokenizer.ggml.add_eos_token");
  vocab.add_space_prefix = file.try_bool("tokenizer.ggml.add_space_prefix");
  vocab.strip_after_control = is_phi3(file);
  return vocab;
}

}  // namespace

text::Tokenizer tokenizer_from_gguf(const gguf::File& file) {
  try {
    return text::Tokenizer::create(vocab_from_gguf(file));
  } catch (const text::VocabError& e) {
    file.refuse(e.code(), e.key(), e.problem());
  }
}

}  // namespace fathom

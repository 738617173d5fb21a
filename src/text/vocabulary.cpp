// SPDX-License-Identifier: Apache-2.0
// Checks a vocabulary that came from a file, which may be damaged or hostile, and finds its byte
// tokens and the tokens that end a generation.
#include "text/vocabulary.hpp"

#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"
#include "text/byte_alphabet.hpp"
#include "text/unicode.hpp"
#include "text/vocab_error.hpp"

namespace fathom::text {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kSpaceMark = "\u2581";

// Names that end a turn in published models. Files often give one of several, or a wrong type.
constexpr std::string_view kEndNames[] = {
    "</s>",       "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<|im_end|>", "<|end|>",       "<end_of_turn>",   "<EOT>",      "<end_of_utterance>"};

VocabModel parse_model(const std::string& name) {
  if (name == "gpt2") return VocabModel::byte_level_bpe;
  if (name == "llama") return VocabModel::sentencepiece;
  fail_key(ErrorCode::unsupported, "tokenizer.ggml.model",
           "found '{}'; supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece): use a "
           "model with one of these",
           printable(name));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The value of "<0xXX>", -1 for any other text.
int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

Vocabulary::Vocabulary(const VocabData& data)
    : model(parse_model(data.model)), tokens_(data.tokens), table_(tokens_) {
  check_and_index(data);
  find_byte_tokens(data);
  find_end_of_generation(data);
}

void Vocabulary::check_and_index(const VocabData& data) {
  const size_t n = tokens_.size();
  if (n == 0 || n > kMaxTokens) {
    fail_key(ErrorCode::bad_file, kTokensKey, "found {} entries; expected 1 to {}", n, kMaxTokens);
  }
  const auto check_length = [&](const char* key, size_t found, bool required) {
    if (found == n || (found == 0 && !required)) return;
    fail_key(ErrorCode::bad_file, key, "found {} entries; expected {}, one per token", found, n);
  };
  const bool is_spm = model == VocabModel::sentencepiece;
  check_length(kScoresKey, data.scores.size(), is_spm);
  check_length(kTypesKey, data.types.size(), false);

  types_.assign(n, TokenType::normal);
  for (size_t id = 0; id < data.types.size(); ++id) {
    if (data.types[id] < 0 || data.types[id] > 6) {
      fail_key(ErrorCode::bad_file, kTypesKey, "token {} has type {}; expected 0 to 6", id,
               data.types[id]);
    }
    types_[id] = static_cast<TokenType>(data.types[id]);
  }
  for (size_t id = 0; is_spm && id < n; ++id) {
    if (std::isnan(data.scores[id])) {
      fail_key(ErrorCode::bad_file, kScoresKey, "the score of token {} is not a number", id);
    }
  }
  const std::pair<const char*, int64_t> specials[] = {
      {"bos", data.bos},     {"eos", data.eos}, {"unknown", data.unk}, {"seperator", data.sep},
      {"padding", data.pad}, {"eot", data.eot}, {"eom", data.eom}};
  for (const auto& [name, id] : specials) {
    if (id >= -1 && id < static_cast<int64_t>(n)) continue;
    fail_key(ErrorCode::bad_file, fmt::format("tokenizer.ggml.{}_token_id", name),
             "found {}; the vocabulary has {} tokens", id, n);
  }
  for (size_t id = 0; id < n; ++id) {
    if (tokens_[id].empty()) continue;  // a hole: no text becomes it
    max_token_bytes_ = std::max(max_token_bytes_, tokens_[id].size());
    switch (table_.insert(static_cast<int32_t>(id))) {
      case StringTable::Insert::done:
        break;
      case StringTable::Insert::duplicate:
        fail_key(ErrorCode::bad_file, kTokensKey, "'{}' stands twice, at {} and {}",
                 printable(tokens_[id]), table_.find(tokens_[id]), id);
      case StringTable::Insert::too_many_collisions:
        fail_key(ErrorCode::bad_file, kTokensKey,
                 "token {} collides with others in the token table; the file is hostile", id);
    }
  }
}

void Vocabulary::find_byte_tokens(const VocabData& data) {
  byte_ids.fill(-1);
  if (model == VocabModel::byte_level_bpe) {
    for (int byte = 0; byte < 256; ++byte) {
      const char value = static_cast<char>(byte);
      std::string character;
      append_byte_alphabet({&value, 1}, character);
      const int32_t id = table_.find(character);
      // Some vocabularies list such a character as text of the user's own; it is no byte then.
      if (id >= 0 && !is_control(id) && types_[id] != TokenType::user_defined) byte_ids[byte] = id;
    }
    return;
  }
  for (int32_t id = 0; id < size(); ++id) {
    if (types_[id] != TokenType::byte) continue;
    const int byte = parse_byte_token(tokens_[id]);
    if (byte < 0) {
      fail_key(ErrorCode::bad_file, kTokensKey,
               "token {} is a byte token named '{}'; expected '<0x00>' to '<0xFF>'", id,
               printable(tokens_[id]));
    }
    byte_ids[byte] = id;
  }
  // As SentencePiece: what no token covers is the unknown token, if the file has a true one.
  const bool has_unk = data.unk >= 0 && types_[data.unk] == TokenType::unknown;
  for (int32_t& id : byte_ids) {
    if (id < 0 && has_unk) id = static_cast<int32_t>(data.unk);
  }
}

void Vocabulary::find_end_of_generation(const VocabData& data) {
  const auto add = [&](int64_t id) {
    const auto token = static_cast<int32_t>(id);
    auto& ids = end_of_generation;
    if (id >= 0 && std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  };
  for (const std::string_view name : kEndNames) {
    const int32_t id = table_.find(name);
    if (id < 0) continue;
    types_[id] = TokenType::control;
    add(id);
  }
  for (const int64_t id : {data.eos, data.eot, data.eom}) add(id);
}

int32_t Vocabulary::find_text(std::string_view text) const {
  const int32_t id = table_.find(text);
  return id < 0 || is_control(id) || types_[id] == TokenType::byte ? -1 : id;
}

void Vocabulary::append_bytes(int32_t id, std::string& out) const {
  const std::string_view text = tokens_[id];
  const TokenType type = types_[id];
  if (is_control(id) || type == TokenType::user_defined) {
    out += text;
  } else if (model == VocabModel::byte_level_bpe) {
    append_alphabet_bytes(text, out);
  } else if (type == TokenType::byte) {
    out.push_back(static_cast<char>(parse_byte_token(text)));
  } else {
    for (size_t pos = 0; pos < text.size();) {
      const size_t mark = std::min(text.find(kSpaceMark, pos), text.size());
      out.append(text, pos, mark - pos);
      if (mark < text.size()) out.push_back(' ');
      pos = mark + kSpaceMark.size();
    }
  }
}

}  // namespace fathom::text

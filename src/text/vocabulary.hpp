// SPDX-License-Identifier: Apache-2.0
// A checked vocabulary: token texts, types and special ids as the encoders use them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/string_table.hpp"
#include "text/tokenizer.hpp"

namespace fathom::text {

enum class VocabModel { byte_level_bpe, sentencepiece };

class Vocabulary {
 public:
  // Throws as Tokenizer::create does.
  explicit Vocabulary(const VocabData& data);
  Vocabulary(const Vocabulary&) = delete;  // the table points into the tokens
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  std::string_view text(int32_t id) const { return tokens_[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  // Control and unknown tokens: never made from plain text.
  bool is_control(int32_t id) const {
    return types_[id] == TokenType::control || types_[id] == TokenType::unknown;
  }
  const StringTable& table() const { return table_; }
  size_t max_token_bytes() const { return max_token_bytes_; }
  // The token of this text if plain text may become it, else -1.
  int32_t find_text(std::string_view text) const;

  void append_bytes(int32_t id, std::string& out) const;

  VocabModel model = VocabModel::byte_level_bpe;
  std::array<int32_t, 256> byte_ids;  // the token of each byte, -1 = none
  std::vector<int32_t> end_of_generation;

 private:
  void check_and_index(const VocabData& data);
  void find_byte_tokens(const VocabData& data);
  void find_end_of_generation(const VocabData& data);

  std::vector<std::string_view> tokens_;
  std::vector<TokenType> types_;
  size_t max_token_bytes_ = 0;
  StringTable table_;
};

}  // namespace fathom::text

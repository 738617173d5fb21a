// SPDX-License-Identifier: Apache-2.0
// Small vocabularies for tests: a VocabData with the strings that it views.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "text/byte_alphabet.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode.hpp"

namespace fathom::test {

class VocabBuilder {
 public:
  // All 256 bytes as tokens 0..255, in the order of their values.
  static VocabBuilder byte_level(const std::string& pre = "gpt-2") {
    VocabBuilder builder;
    builder.data.model = "gpt2";
    builder.data.pre = pre;
    for (int byte = 0; byte < 256; ++byte) {
      std::string character;
      text::append_utf8(text::kByteAlphabet.code_point[byte], character);
      builder.token(character);
    }
    return builder;
  }

  // <unk> <s> </s>, then the 256 byte tokens, then whatever is added.
  static VocabBuilder sentencepiece() {
    VocabBuilder builder;
    builder.data.model = "llama";
    builder.token("<unk>", text::TokenType::unknown);
    builder.token("<s>", text::TokenType::control);
    builder.token("</s>", text::TokenType::control);
    for (int byte = 0; byte < 256; ++byte) {
      builder.token(fmt::format("<0x{:02X}>", byte), text::TokenType::byte);
    }
    builder.data.unk = 0;
    builder.data.bos = 1;
    builder.data.eos = 2;
    return builder;
  }

  int32_t token(const std::string& text, text::TokenType type = text::TokenType::normal,
                float score = 0) {
    data.tokens.push_back(keep(text));
    data.types.push_back(static_cast<int32_t>(type));
    data.scores.push_back(score);
    return static_cast<int32_t>(data.tokens.size() - 1);
  }

  // A merge, and the token it makes if that is new.
  void merge(const std::string& left, const std::string& right) {
    data.merges.push_back(keep(left + " " + right));
    const std::string made = left + right;
    for (const std::string_view token_text : data.tokens) {
      if (token_text == made) return;
    }
    token(made);
  }

  text::VocabData data;

 private:
  std::string_view keep(std::string text) { return strings_->emplace_back(std::move(text)); }

  std::shared_ptr<std::deque<std::string>> strings_ = std::make_shared<std::deque<std::string>>();
};

}  // namespace fathom::test

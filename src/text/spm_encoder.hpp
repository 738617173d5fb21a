// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE: spaces become U+2581, characters are symbols, and the adjacent pair whose
// joined text is the token of the highest score merges first. What is no token in the end is
// written in byte tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/symbol_merger.hpp"
#include "text/vocabulary.hpp"

namespace fathom::text {

class SpmEncoder {
 public:
  // `vocabulary` must outlive this.
  SpmEncoder(const Vocabulary& vocabulary, const std::vector<float>& scores);

  // Appends the tokens of text[begin, end), with a space before it if `add_space`; their offsets
  // count from the start of `text`.
  void encode(std::string_view text, size_t begin, size_t end, bool add_space,
              std::vector<TokenSpan>& out) const;

 private:
  struct Word;
  void encode_word(Word& word, std::vector<TokenSpan>& out) const;

  const Vocabulary& vocabulary_;
  bool cuts_at_marks_ = true;
  std::vector<uint32_t> priorities_;  // per token: lower for a higher score
};

}  // namespace fathom::text

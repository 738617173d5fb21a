// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: the text is cut into words by the pre-tokenizer; each word's bytes are tokens,
// which merge in the order of the file's list.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer.hpp"
#include "text/symbol_merger.hpp"
#include "text/vocabulary.hpp"

namespace fathom::text {

class BpeEncoder {
 public:
  // `vocabulary` must outlive this. Throws Error{bad_file} for merges that make no sense in it.
  BpeEncoder(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges,
             const PreTokenizer& pre_tokenizer);

  // Appends the tokens of text[begin, end); their offsets count from the start of `text`. Broken
  // UTF-8 is encoded as repair_utf8() reads it; the last token of a character takes its bytes.
  void encode(std::string_view text, size_t begin, size_t end, std::vector<TokenSpan>& out) const;

 private:
  struct Slot {
    uint64_t pair;  // left id << 32 | right id
    Merge merge;    // an empty slot has merge.id -1
  };
  void add_batch(const std::vector<std::string_view>& merges, size_t first, size_t n);
  void insert(const Slot& added, std::string_view text);
  void encode_words(std::string_view text, size_t begin, size_t end,
                    std::vector<TokenSpan>& out) const;
  Merge find(int32_t left, int32_t right) const;
  void encode_word(std::string_view word, size_t offset, SymbolMerger& merger,
                   std::vector<TokenSpan>& out) const;

  const Vocabulary& vocabulary_;
  const PreTokenizer& pre_tokenizer_;
  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace fathom::text

// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: how a text is cut into words before byte pairs are merged. Each is a row of a
// table: names as in `tokenizer.ggml.pre`, and up to five scanners, each of which cuts the words
// of the one before it, as the published regular expressions do. Every scanner is linear.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace fathom::text {

// End of the word that starts at `pos`; always past `pos`. REQUIRES: pos < text.size().
using Scanner = size_t (*)(std::string_view text, size_t pos);

struct PreTokenizer {
  std::array<std::string_view, 12> names;  // the first is the row's own
  std::array<Scanner, 6> stages;           // null after the last
  bool whole_words = false;                // a word that is a token is not built from merges
  bool add_bos = false;                    // when the file does not say
};

// Null when no row has this name.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
std::vector<std::string_view> known_pre_tokenizers();

// Calls emit(begin, end) for each word of `text`, in order; together they are the text.
template <class Emit>
void for_each_word(const Scanner* stage, std::string_view text, size_t base, Emit&& emit) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = (*stage)(text, pos);
    if (stage[1]) {
      for_each_word(stage + 1, text.substr(pos, end - pos), base + pos, emit);
    } else {
      emit(base + pos, base + end);
    }
    pos = end;
  }
}

}  // namespace fathom::text

// SPDX-License-Identifier: Apache-2.0
// Where no token has a mark inside, a text is cut before each mark that follows another character:
// no merge could cross that place, and short heaps stay in the cache.
#include "text/spm_encoder.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "text/unicode.hpp"

namespace fathom::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// Orders floats as unsigned integers, the highest first; never kNoPair, as NaN is refused.
uint32_t priority_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 counts as 0
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

// Whether a mark follows another character inside the token.
bool has_inner_mark(std::string_view token) {
  size_t pos = 0;
  while (token.substr(pos).starts_with(kSpaceMark)) pos += kSpaceMark.size();
  return token.find(kSpaceMark, pos) != std::string_view::npos;
}

}  // namespace

// Symbols are characters of the text with its spaces replaced; text_ends maps them back.
struct SpmEncoder::Word {
  explicit Word(size_t begin) : text_begin(begin) {}

  void add(std::string_view character, size_t text_end) {
    merger.symbols.push_back({-1,
                              static_cast<uint32_t>(marked.size()),
                              static_cast<uint32_t>(character.size()),
                              0,
                              0,
                              {}});
    marked += character;
    text_ends.push_back(text_end);
  }
  void restart(size_t begin) {
    text_begin = begin;
    marked.clear();
    text_ends.clear();
    merger.symbols.clear();
  }

  size_t text_begin;
  std::string marked;
  std::vector<size_t> text_ends;
  SymbolMerger merger;
};

SpmEncoder::SpmEncoder(const Vocabulary& vocabulary, const std::vector<float>& scores)
    : vocabulary_(vocabulary) {
  priorities_.reserve(scores.size());
  for (const float score : scores) priorities_.push_back(priority_of(score));
  for (int32_t id = 0; id < vocabulary.size() && cuts_at_marks_; ++id) {
    cuts_at_marks_ = !has_inner_mark(vocabulary.text(id));
  }
}

void SpmEncoder::encode(std::string_view text, size_t begin, size_t end, bool add_space,
                        std::vector<TokenSpan>& out) const {
  Word word(begin);
  if (add_space) word.add(kSpaceMark, begin);
  const std::string_view input = text.substr(0, end);
  bool after_mark = true;
  for (size_t pos = begin; pos < end;) {
    const size_t n_bytes = std::max(1, utf8_length(input, pos));
    const std::string_view character = text[pos] == ' ' ? kSpaceMark : text.substr(pos, n_bytes);
    const bool is_mark = character == kSpaceMark;
    if (cuts_at_marks_ && is_mark && !after_mark) {
      encode_word(word, out);
      word.restart(pos);
    }
    after_mark = is_mark;
    pos += n_bytes;
    word.add(character, pos);
  }
  encode_word(word, out);
}

void SpmEncoder::encode_word(Word& word, std::vector<TokenSpan>& out) const {
  auto& symbols = word.merger.symbols;
  const std::string_view marked = word.marked;
  for (Symbol& symbol : symbols) {
    symbol.id = vocabulary_.find_text(marked.substr(symbol.begin, symbol.n_bytes));
  }
  word.merger.run([&](const Symbol& left, const Symbol& right) -> Merge {
    const size_t n_bytes = left.n_bytes + right.n_bytes;
    if (n_bytes > vocabulary_.max_token_bytes()) return {};
    const int32_t id = vocabulary_.find_text(marked.substr(left.begin, n_bytes));
    return id < 0 ? Merge{} : Merge{priorities_[id], id};
  });

  size_t token_begin = word.text_begin;
  for (size_t i = 0; i < symbols.size();) {
    size_t next = i + 1;
    while (next < symbols.size() && symbols[next].n_bytes == 0) ++next;
    const size_t token_end = word.text_ends[next - 1];
    if (symbols[i].id >= 0) {
      out.push_back({symbols[i].id, token_begin, token_end});
    } else {  // one character that is no token
      const size_t n_bytes = symbols[i].n_bytes;
      const bool is_mark = token_end - token_begin != n_bytes;  // a space: three bytes for one
      for (size_t b = 0; b < n_bytes; ++b) {
        const int32_t id = vocabulary_.byte_ids[static_cast<uint8_t>(marked[symbols[i].begin + b])];
        if (id < 0) continue;
        const size_t at = is_mark ? token_begin : token_begin + b;
        out.push_back({id, at, b + 1 == n_bytes ? token_end : is_mark ? at : at + 1});
      }
    }
    token_begin = token_end;
    i = next;
  }
}

}  // namespace fathom::text

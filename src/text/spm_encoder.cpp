// SPDX-License-Identifier: Apache-2.0
// The symbols live in the text with its spaces replaced; positions_ maps its characters back.
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

}  // namespace

SpmEncoder::SpmEncoder(const Vocabulary& vocabulary, const std::vector<float>& scores)
    : vocabulary_(vocabulary) {
  priorities_.reserve(scores.size());
  for (const float score : scores) priorities_.push_back(priority_of(score));
}

void SpmEncoder::encode(std::string_view text, size_t begin, size_t end, bool add_space,
                        std::vector<TokenSpan>& out) const {
  std::string marked;
  std::vector<size_t> ends;  // per symbol: where its character ends in `text`
  SymbolMerger merger;
  merger.symbols.reserve(end - begin + 1);
  const auto add = [&](std::string_view character, size_t text_end) {
    merger.symbols.push_back({vocabulary_.find_text(character),
                              static_cast<uint32_t>(marked.size()),
                              static_cast<uint32_t>(character.size()),
                              0,
                              0,
                              {}});
    marked += character;
    ends.push_back(text_end);
  };
  if (add_space) add(kSpaceMark, begin);
  const std::string_view input = text.substr(0, end);
  for (size_t pos = begin; pos < end;) {
    const int n_bytes = std::max(1, utf8_length(input, pos));
    add(text[pos] == ' ' ? kSpaceMark : text.substr(pos, n_bytes), pos + n_bytes);
    pos += n_bytes;
  }
  merger.run([&](const Symbol& left, const Symbol& right) -> Merge {
    const size_t n_bytes = left.n_bytes + right.n_bytes;
    if (n_bytes > vocabulary_.max_token_bytes()) return {};
    const int32_t id = vocabulary_.find_text(std::string_view(marked).substr(left.begin, n_bytes));
    return id < 0 ? Merge{} : Merge{priorities_[id], id};
  });

  const auto& symbols = merger.symbols;
  size_t token_begin = begin;
  for (size_t i = 0; i < symbols.size();) {
    size_t next = i + 1;
    while (next < symbols.size() && symbols[next].n_bytes == 0) ++next;
    const size_t token_end = ends[next - 1];
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

// SPDX-License-Identifier: Apache-2.0
// The sorted texts serve as a trie: each further byte narrows the range of those that still match.
#include "text/special_matcher.hpp"

#include <algorithm>

#include "text/vocab_error.hpp"

namespace fathom::text {

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary, Select select) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const bool is_user_defined = vocabulary.type(id) == TokenType::user_defined;
    const std::string_view text = vocabulary.text(id);
    if (!is_user_defined && !(select == Select::all && vocabulary.is_control(id))) continue;
    if (text.empty()) continue;
    if (text.size() > kMaxTokenBytes) {
      fail_key(ErrorCode::bad_file, "tokenizer.ggml.tokens",
               "token {} is a special token of {} bytes; the limit is {}", id, text.size(),
               kMaxTokenBytes);
    }
    tokens_.push_back({text, id});
    first_bytes_.set(static_cast<uint8_t>(text[0]));
  }
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.text < b.text; });
}

SpecialMatcher::Match SpecialMatcher::find(std::string_view text, size_t pos) const {
  for (; pos < text.size(); ++pos) {
    if (!first_bytes_.test(static_cast<uint8_t>(text[pos]))) continue;
    auto low = tokens_.begin(), high = tokens_.end();
    const Token* longest = nullptr;
    for (size_t depth = 0; pos + depth < text.size(); ++depth) {
      // All of [low, high) are longer than `depth` and agree with the text so far.
      const auto next = static_cast<uint8_t>(text[pos + depth]);
      const auto byte = [depth](const Token& t) { return static_cast<uint8_t>(t.text[depth]); };
      low = std::partition_point(low, high, [&](const Token& t) { return byte(t) < next; });
      high = std::partition_point(low, high, [&](const Token& t) { return byte(t) == next; });
      if (low != high && low->text.size() == depth + 1) longest = &*low++;
      if (low == high) break;
    }
    if (longest) return {pos, pos + longest->text.size(), longest->id};
  }
  return {text.size(), text.size(), -1};
}

}  // namespace fathom::text

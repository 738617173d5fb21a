// SPDX-License-Identifier: Apache-2.0
// The scanners and the table of pre-tokenizers. The comment over each scanner is the published
// regular expression that it equals; the test runs both on hard text.
#include "text/pre_tokenizer.hpp"

#include <algorithm>

#include "text/unicode.hpp"

namespace fathom::text {
namespace {

enum class Case { sensitive, ignored };

// Length of 's 't 're 've 'm 'll 'd after the apostrophe at `pos`, 0 if none follows. Ignoring
// case, U+017F counts as s: it is the one further character that folds into these letters.
size_t contraction_length(std::string_view text, size_t pos, Case letter_case) {
  const auto fold = [&](size_t at) -> char {
    if (at >= text.size()) return 0;
    const char c = text[at];
    return letter_case == Case::ignored && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char first = fold(pos + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (letter_case == Case::ignored && text.substr(pos + 1, 2) == "\u017F") return 3;
  const char second = fold(pos + 2);
  if (second == 'e' && (first == 'r' || first == 'v')) return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

// \s+(?!\S)|\s+ : the last white space of a run is left to the word that follows it.
size_t space_word(std::string_view text, size_t pos) {
  size_t last = pos;
  size_t end = pos;
  for (Char c = char_at(text, end); c.is(kSpace); c = char_at(text, end)) {
    last = end;
    end += c.n_bytes;
  }
  return end == text.size() || last == pos ? end : last;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2_word(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  if (c.code_point == '\'') {
    if (const size_t n = contraction_length(text, pos, Case::sensitive)) return pos + n;
  }
  const size_t start = c.code_point == ' ' ? pos + 1 : pos;
  constexpr int kRest = kPunct | kSymbol | kMark | kOther;
  for (const int classes : {int{kLetter}, int{kNumber}, kRest}) {
    if (char_at(text, start).is(classes)) return skip(text, start, classes);
  }
  return space_word(text, pos);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,MaxDigits}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// With kMark in WordClasses: [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}] for [^\s\p{L}\p{N}].
template <int MaxDigits, int WordClasses>
size_t cl100k_word(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  if (c.code_point == '\'') {
    if (const size_t n = contraction_length(text, pos, Case::ignored)) return pos + n;
  }
  if (c.is(WordClasses)) return skip(text, pos, WordClasses);
  if (c.is(kNumber)) {
    for (int n = 0; n < MaxDigits && char_at(text, pos).is(kNumber); ++n) {
      pos += char_at(text, pos).n_bytes;
    }
    return pos;
  }
  const bool is_newline = c.code_point == '\r' || c.code_point == '\n';
  if (!is_newline && char_at(text, pos + c.n_bytes).is(WordClasses)) {
    return skip(text, pos + c.n_bytes, WordClasses);
  }
  const auto skip_newlines = [&](size_t at) {
    while (at < text.size() && (text[at] == '\r' || text[at] == '\n')) ++at;
    return at;
  };
  constexpr int kRest = (kPunct | kSymbol | kMark | kOther) & ~WordClasses;
  const size_t start = c.code_point == ' ' ? pos + 1 : pos;
  if (char_at(text, start).is(kRest)) return skip_newlines(skip(text, start, kRest));
  const size_t spaces_end = skip(text, pos, kSpace);
  const size_t newline = text.substr(pos, spaces_end - pos).find_last_of("\r\n");
  return newline == std::string_view::npos ? space_word(text, pos) : pos + newline + 1;
}

// A matcher gives the end of its match at `pos`, or `pos` for none, and must find "none" in
// constant time. isolate<> cuts a text into matches and what lies between them.
template <Scanner Match>
size_t isolate(std::string_view text, size_t pos) {
  if (const size_t end = Match(text, pos); end != pos) return end;
  do {
    pos += char_at(text, pos).n_bytes;
  } while (pos < text.size() && Match(text, pos) == pos);
  return pos;
}

// \p{N}
size_t match_number(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  return c.is(kNumber) ? pos + c.n_bytes : pos;
}

// [0-9][0-9][0-9]
size_t match_three_digits(std::string_view text, size_t pos) {
  const std::string_view three = text.substr(pos, 3);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return three.size() == 3 && std::all_of(three.begin(), three.end(), is_digit) ? pos + 3 : pos;
}

// [\r\n]
size_t match_newline(std::string_view text, size_t pos) {
  return text[pos] == '\r' || text[pos] == '\n' ? pos + 1 : pos;
}

// \s?[classes]+
template <int Classes>
size_t match_spaced(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  const size_t start = c.is(kSpace) ? pos + c.n_bytes : pos;
  const size_t end = skip(text, start, Classes);
  return end == start ? pos : end;
}

// [\p{P}\$\+<=>\^~\|`]+ : the symbols are all those of ASCII.
size_t match_falcon_punctuation(std::string_view text, size_t pos) {
  const auto belongs = [](const Char& c) {
    return c.is(kPunct) || (c.is(kSymbol) && c.code_point < 0x80);
  };
  for (Char c = char_at(text, pos); belongs(c); c = char_at(text, pos)) pos += c.n_bytes;
  return pos;
}

// [一-龥ࠀ-一가-퟿]+
size_t match_cjk(std::string_view text, size_t pos) {
  const auto belongs = [](uint32_t c) {
    return (c >= 0x0800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF);
  };
  for (Char c = char_at(text, pos); belongs(c.code_point); c = char_at(text, pos)) {
    pos += c.n_bytes;
  }
  return pos;
}

constexpr PreTokenizer kPreTokenizers[] = {
    {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat",
               "a.x-4.0", "mellum", "exaone4"},
     .stages = {gpt2_word}},
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
               "mellum2"},
     .stages = {isolate<match_number>, gpt2_word}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
               "lfm2"},
     .stages = {cl100k_word<3, kLetter>},
     .whole_words = true,
     .add_bos = true},
    {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .stages = {cl100k_word<3, kLetter>}},
    {.names = {"glm4"}, .stages = {cl100k_word<3, kLetter>}, .whole_words = true},
    {.names = {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan",
               "solar-open", "grok-2"},
     .stages = {cl100k_word<1, kLetter>}},
    {.names = {"qwen35"}, .stages = {cl100k_word<1, kLetter | kMark>}},
    {.names = {"falcon"},
     .stages = {isolate<match_falcon_punctuation>, gpt2_word, isolate<match_three_digits>}},
    {.names = {"deepseek-coder"},
     .stages = {isolate<match_newline>, isolate<match_spaced<kLetter>>,
                isolate<match_spaced<kPunct>>, isolate<match_cjk>, isolate<match_number>}},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const PreTokenizer& row : kPreTokenizers) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return &row;
  }
  return nullptr;
}

std::vector<std::string_view> known_pre_tokenizers() {
  std::vector<std::string_view> names;
  for (const PreTokenizer& row : kPreTokenizers) {
    for (std::string_view name : row.names) {
      if (!name.empty()) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace fathom::text

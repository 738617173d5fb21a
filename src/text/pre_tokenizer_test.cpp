// SPDX-License-Identifier: Apache-2.0
// Every scanner against PCRE2 running the published regular expressions, on hard random text.
#include "text/pre_tokenizer.hpp"

#include <gtest/gtest.h>
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "text/unicode.hpp"

namespace fathom::text {
namespace {

// PCRE2's \s has U+180E besides the property White_Space, so the property is spelt out.
const std::string kSpaces =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Writes the classes for <s> inside a class, <space> and <no space>.
std::string spell_out(std::string pattern) {
  const std::pair<std::string, std::string> names[] = {
      {"<s>", kSpaces}, {"<space>", "[" + kSpaces + "]"}, {"<no space>", "[^" + kSpaces + "]"}};
  for (const auto& [name, spelt] : names) {
    for (size_t at; (at = pattern.find(name)) != std::string::npos;) {
      pattern.replace(at, name.size(), spelt);
    }
  }
  return pattern;
}

std::string gpt2() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^<s>\p{L}\p{N}]+|)"
         "<space>+(?!<no space>)|<space>+";
}

std::string cl100k(const std::string& digits, const std::string& word) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[)" + word + "]+|" + digits +
         R"(| ?[^<s>)" + word + R"(\p{N}]+[\r\n]*|<space>*[\r\n]+|)" +
         "<space>+(?!<no space>)|<space>+";
}

struct Published {
  const char* name;
  std::vector<std::string> patterns;
};

std::vector<Published> published() {
  return {
      {"gpt-2", {gpt2()}},
      {"smollm", {R"(\p{N})", gpt2()}},
      {"llama-bpe", {cl100k(R"(\p{N}{1,3})", R"(\p{L})")}},
      {"dbrx", {cl100k(R"(\p{N}{1,3})", R"(\p{L})")}},
      {"glm4", {cl100k(R"(\p{N}{1,3})", R"(\p{L})")}},
      {"qwen2", {cl100k(R"(\p{N})", R"(\p{L})")}},
      {"qwen35", {cl100k(R"(\p{N})", R"(\p{L}\p{M})")}},
      {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2(), "[0-9][0-9][0-9]"}},
      {"deepseek-coder",
       {R"([\r\n])", R"(<space>?\p{L}+)", R"(<space>?\p{P}+)",
        R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"}},
  };
}

class Regex {
 public:
  explicit Regex(const std::string& named_pattern) {
    const std::string pattern = spell_out(named_pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
    if (!code_) throw std::logic_error(pattern);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Regex() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The next match at or after `pos`; false if there is none.
  bool search(std::string_view text, size_t pos, size_t& begin, size_t& end) const {
    if (pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos, 0, match_,
                    nullptr) < 0) {
      return false;
    }
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match_);
    begin = found[0];
    end = found[1];
    return true;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// Cuts each word into matches and what lies between them, regex after regex.
std::vector<std::string> split(const std::vector<std::unique_ptr<Regex>>& regexes,
                               const std::string& text) {
  std::vector<std::string> words = {text};
  for (const auto& regex : regexes) {
    std::vector<std::string> finer;
    for (const std::string& word : words) {
      size_t pos = 0, begin = 0, end = 0;
      while (pos < word.size() && regex->search(word, pos, begin, end)) {
        if (begin > pos) finer.push_back(word.substr(pos, begin - pos));
        finer.push_back(word.substr(begin, end - begin));
        pos = end;
      }
      if (pos < word.size()) finer.push_back(word.substr(pos));
    }
    words = std::move(finer);
  }
  return words;
}

std::vector<std::string> split(const PreTokenizer& row, const std::string& text) {
  std::vector<std::string> words;
  for_each_word(row.stages.data(), text, 0, [&](size_t begin, size_t end) {
    words.push_back(text.substr(begin, end - begin));
  });
  return words;
}

std::string utf8(uint32_t code_point) {
  std::string out;
  append_utf8(code_point, out);
  return out;
}

struct ClassRegex {
  CharClass char_class;
  Regex regex;
};

// The class by PCRE2's own tables; 0 for a code point that they do not assign.
int oracle_class(const std::string& character) {
  static const ClassRegex kClasses[] = {{kSpace, Regex("^<space>")},
                                        {kLetter, Regex("^\\p{L}")},
                                        {kNumber, Regex("^\\p{N}")},
                                        {kPunct, Regex("^\\p{P}")},
                                        {kSymbol, Regex("^\\p{S}")},
                                        {kMark, Regex("^\\p{M}")},
                                        {kOther, Regex("^[\\p{Cc}\\p{Cf}\\p{Co}]")}};
  size_t begin = 0, end = 0;
  for (const auto& [char_class, regex] : kClasses) {
    if (regex.search(character, 0, begin, end)) return char_class;
  }
  return 0;
}

// The two libraries may know different versions of Unicode: then one has what the other calls
// unassigned, and nothing else differs.
TEST(CharClasses, EqualPcre2WhereItAssigns) {
  int n_newer = 0;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string character = utf8(c);
    const Char found = char_at(character, 0);
    ASSERT_EQ(found.code_point, c);
    ASSERT_EQ(found.n_bytes, character.size());
    const int expected = oracle_class(character);
    if (expected == 0) {
      n_newer += found.char_class != kOther;
    } else {
      ASSERT_EQ(int{found.char_class}, expected) << std::hex << c;
    }
  }
  EXPECT_LT(n_newer, 10000);
}

// Characters and fragments at which the rules branch.
// clang-format off
const char* const kPieces[] = {
    "'s", "'S", "'t", "'re", "'RE", "'vE", "'ll", "'Ll", "'l", "'", "''", "'\u017F", "'d", "'m",
    " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\u0085", "\u00A0", "\u3000",
    "\u2028", "\u180E", "a", "Z", "hello", "0", "12", "345", "6789", "\u0663", "\u00B2", "\u2167",
    "\u00BD", "\u00E9", "e\u0301", "\u0301", "\u0915\u093F", "\u4E00", "\u9FA5", "\u9FA6", "\uAC00",
    "\uD7FB", "\u0800", "\u3042", "\U0001F600", "\U0001F469\u200D\U0001F680", "\uFE0F", "!", "?!",
    "\u3002", "$", "+", "`", "~", "_", "\u20AC", "\u2603", "\u00AD", "\u0007", "\u200B", "\uE000",
    "\u0378", "\uFFFF", "\U00020000", "\u01C5", "\u02B0", "\u212A",
};
// clang-format on

std::string random_text(std::mt19937& random) {
  std::string text;
  const int n = std::uniform_int_distribution(0, 24)(random);
  for (int i = 0; i < n; ++i) {
    if (random() % 8 == 0) {
      const uint32_t c = random() % 2 ? random() % 0x3000 : random() % 0x110000;
      const std::string character = c >= 0xD800 && c < 0xE000 ? "x" : utf8(c);
      if (oracle_class(character) == char_at(character, 0).char_class) text += character;
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

class Scanners : public testing::TestWithParam<Published> {};

TEST_P(Scanners, EqualPublishedRegex) {
  const PreTokenizer* row = find_pre_tokenizer(GetParam().name);
  ASSERT_NE(row, nullptr);
  std::vector<std::unique_ptr<Regex>> regexes;
  for (const std::string& pattern : GetParam().patterns) {
    regexes.push_back(std::make_unique<Regex>(pattern));
  }
  std::mt19937 random(20240601);
  size_t n_words = 0;
  for (int round = 0; round < 8000; ++round) {
    const std::string text = random_text(random);
    const auto expected = split(regexes, text);
    ASSERT_EQ(split(*row, text), expected) << "round " << round;
    n_words += expected.size();
  }
  EXPECT_GT(n_words, 40000u);
}

INSTANTIATE_TEST_SUITE_P(All, Scanners, testing::ValuesIn(published()), [](const auto& row) {
  std::string name = row.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Broken UTF-8 has no regular expression; the words must still be all of the text.
TEST(PreTokenizers, AnyBytesAreCovered) {
  std::mt19937 random(7);
  for (const std::string_view name : known_pre_tokenizers()) {
    const PreTokenizer* row = find_pre_tokenizer(name);
    ASSERT_NE(row, nullptr) << name;
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 40, '\0');
      for (char& c : text) c = static_cast<char>(random());
      std::string joined;
      for (const std::string& word : split(*row, text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text) << name;
    }
  }
}

TEST(PreTokenizers, EveryRowIsTested) {
  const auto rows = published();
  for (const std::string_view name : known_pre_tokenizers()) {
    const PreTokenizer* row = find_pre_tokenizer(name);
    const auto has_row = [&](const Published& p) { return find_pre_tokenizer(p.name) == row; };
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), has_row)) << name;
  }
  EXPECT_EQ(find_pre_tokenizer("default"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
}

// By hand, from the rules.
TEST(PreTokenizers, WorkedExamples) {
  const auto words = [](const char* name, const std::string& text) {
    return split(*find_pre_tokenizer(name), text);
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("gpt-2", "It's  3333+777"), (Words{"It", "'s", " ", " 3333", "+", "777"}));
  EXPECT_EQ(words("llama-bpe", "3333+777"), (Words{"333", "3", "+", "777"}));
  EXPECT_EQ(words("smollm", "a12"), (Words{"a", "1", "2"}));
  EXPECT_EQ(words("qwen2", "x \n\n y"), (Words{"x", " \n\n", " y"}));
}

}  // namespace
}  // namespace fathom::text

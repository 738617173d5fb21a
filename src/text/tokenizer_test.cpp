// SPDX-License-Identifier: Apache-2.0
// Encoders against naive ones, special tokens, hostile vocabularies, and linear time.
#include "text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>

#include "base/utf8.hpp"
#include "fathom/error.hpp"
#include "tests/support/text_vocab.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/unicode.hpp"

namespace fathom::text {
namespace {

using test::VocabBuilder;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  for (const int32_t id : ids) tokenizer.append_piece(id, out);
  return out;
}

std::string bytes_of(std::string_view text) {
  std::string out;
  append_byte_alphabet(text, out);
  return out;
}

// Merges over a, b and space that overlap in every way.
VocabBuilder merging_vocab(const std::string& pre = "gpt-2") {
  auto vocab = VocabBuilder::byte_level(pre);
  const std::string space = bytes_of(" ");
  vocab.merge("a", "b");
  vocab.merge("b", "a");
  vocab.merge("a", "a");
  vocab.merge("aa", "aa");
  vocab.merge("ab", "ab");
  vocab.merge("b", "aa");
  vocab.merge(space, "a");
  vocab.merge(space + "a", "b");
  vocab.merge("aa", "ab");
  return vocab;
}

// The definition, word by word: join the first best pair, again and again.
Ids naive_bpe(const VocabData& vocab, std::string_view text) {
  const auto id_of = [&](const std::string& token) {
    const auto found = std::find(vocab.tokens.begin(), vocab.tokens.end(), token);
    return static_cast<int32_t>(found - vocab.tokens.begin());
  };
  Ids ids;
  for_each_word(find_pre_tokenizer(*vocab.pre)->stages.data(), text, 0, [&](size_t b, size_t e) {
    std::vector<std::string> parts;
    for (const char byte : text.substr(b, e - b)) parts.push_back(bytes_of({&byte, 1}));
    for (;;) {
      size_t best_rank = vocab.merges.size(), best = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found =
            std::find(vocab.merges.begin(), vocab.merges.end(), parts[i] + " " + parts[i + 1]);
        const auto rank = static_cast<size_t>(found - vocab.merges.begin());
        if (rank < best_rank) best_rank = rank, best = i;
      }
      if (best_rank == vocab.merges.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& part : parts) ids.push_back(id_of(part));
  });
  return ids;
}

rc::Gen<std::string> text_of(const std::string& alphabet) {
  return rc::gen::container<std::string>(rc::gen::elementOf(alphabet));
}

TEST(ByteLevelBpe, EqualsTheDefinition) {
  const auto vocab = merging_vocab();
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_TRUE(rc::check("ids equal the naive encoder's", [&] {
    const auto text = *text_of("aaaabb c");
    RC_ASSERT(tokenizer.encode(text) == naive_bpe(vocab.data, text));
  }));
}

TEST(ByteLevelBpe, TextsComeBackAndBrokenOnesRepaired) {
  for (const std::string_view pre : known_pre_tokenizers()) {
    const auto vocab = merging_vocab(std::string(pre));
    const auto tokenizer = Tokenizer::create(vocab.data);
    EXPECT_TRUE(rc::check("decode(encode(x)) == repair(x)", [&](const std::string& text) {
      const std::string expected = repair_utf8(text).text;
      RC_ASSERT(decode(tokenizer, tokenizer.encode(text, {.add_special = false})) == expected);
      RC_ASSERT(!is_valid_utf8(text) || expected == text);
    })) << pre;
  }
}

// Derived from unicode_cpts_from_utf8() of llama.cpp; tests/e2e/vocab_vectors_test.cpp has ids of
// llama-tokenize for the same texts.
TEST(ByteLevelBpe, InvalidUtf8BecomesReplacementCharacters) {
  const std::string r = "\uFFFD";
  const std::pair<std::string_view, std::string> cases[] = {
      {"a\xFF"
       "b",
       "a" + r + "b"},
      {"caf\xC3", "caf" + r},                         // cut at the end
      {"\xE4\xB8x", r + r + "x"},                     // one for each byte of a cut sequence
      {"\xF0\x9F\xA6 z", r + r + r + " z"},           // the byte after it is left alone
      {"\x80\x80", r + r},                            // continuation bytes alone
      {"\xF8\x88\x80\x80\x80", r + r + r + r + r},    // no lead byte any more
      {"\xF4\x90\x80\x80", r + r + r + r},            // past U+10FFFF
      {"x\xC0\xAFy", "x/y"},                          // overlong
      {{"\xF0\x80\x80\x80", 4}, std::string(1, 0)},   // overlong
      {"\xED\xA0\x80", "\xED\xA0\x80"},               // a surrogate
      {"\u4E2D\xFF\u4E2D", "\u4E2D" + r + "\u4E2D"},  // valid neighbours
  };
  const auto vocab = VocabBuilder::byte_level();
  const auto tokenizer = Tokenizer::create(vocab.data);
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(decode(tokenizer, tokenizer.encode(text)), expected) << testing::PrintToString(text);
  }
}

// The words are those of the repaired text: a surrogate before a letter belongs to its word.
TEST(ByteLevelBpe, SurrogateIsOneCharacter) {
  EXPECT_EQ(find_pre_tokenizer("llama-bpe")
                ->stages[0]("\xED\xA0\x80"
                            "abc",
                            0),
            6u);
}

TEST(ByteLevelBpe, OffsetsOfBrokenTextStayInTheInput) {
  const auto vocab = VocabBuilder::byte_level();
  const auto tokenizer = Tokenizer::create(vocab.data);
  const auto spans = tokenizer.encode_with_offsets("a\xFF\xC0\xAF");
  std::vector<std::vector<size_t>> found;
  for (const TokenSpan& span : spans) {
    found.push_back({static_cast<size_t>(span.id), span.begin, span.end});
  }
  EXPECT_EQ(found, (std::vector<std::vector<size_t>>{
                       {'a', 0, 1}, {0xEF, 1, 1}, {0xBF, 1, 1}, {0xBD, 1, 2}, {'/', 2, 4}}));
}

TEST(ByteLevelBpe, OffsetsPartitionTheText) {
  const auto vocab = merging_vocab();
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_TRUE(rc::check("spans are the bytes of their tokens", [&] {
    const auto text = *text_of("aaab b \xC3\xA4");
    size_t pos = 0;
    for (const TokenSpan& span : tokenizer.encode_with_offsets(text)) {
      RC_ASSERT(span.begin == pos);
      RC_ASSERT(!is_valid_utf8(text) ||
                tokenizer.decode_piece(span.id) == text.substr(pos, span.end - pos));
      pos = span.end;
    }
    RC_ASSERT(pos == text.size());
  }));
}

TEST(ByteLevelBpe, WholeWordsComeBeforeMerges) {
  auto vocab = VocabBuilder::byte_level("llama-bpe");
  const int32_t word = vocab.token("hello");  // no merges lead to it
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_EQ(tokenizer.encode("hello"), Ids{word});
  vocab.data.pre = "qwen2";
  EXPECT_EQ(Tokenizer::create(vocab.data).encode("hello").size(), 5u);
}

TEST(ByteLevelBpe, ByteWithoutTokenIsLeftOut) {
  auto vocab = VocabBuilder::byte_level();
  vocab.data.tokens[7] = "<other>";
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_FALSE(tokenizer.has_byte(7));
  EXPECT_EQ(tokenizer.encode("a\ab"), (Ids{'a', 'b'}));
}

struct Spm {
  VocabBuilder vocab = VocabBuilder::sentencepiece();
  int32_t mark, a, b, mark_a, ab, aba;
  Spm() {
    vocab.token("\u2581\u2581", TokenType::normal, -8.5f);
    mark = vocab.token("\u2581", TokenType::normal, -9);
    a = vocab.token("a", TokenType::normal, -8);
    b = vocab.token("b", TokenType::normal, -7);
    mark_a = vocab.token("\u2581a", TokenType::normal, -2);
    ab = vocab.token("ab", TokenType::normal, -3);
    aba = vocab.token("aba", TokenType::normal, -4.5f);
  }
};

TEST(SentencePiece, WorkedExamples) {
  const Spm spm;
  const auto tokenizer = Tokenizer::create(spm.vocab.data);
  EXPECT_EQ(tokenizer.encode(""), Ids{1});
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{1, spm.mark_a, spm.b}));
  EXPECT_EQ(tokenizer.encode("bab", {.add_special = false}), (Ids{spm.mark, spm.b, spm.ab}));
  EXPECT_EQ(tokenizer.encode("baba", {.add_special = false}), (Ids{spm.mark, spm.b, spm.aba}));
  // A character that is no token: its bytes. 3 is <0x00>.
  EXPECT_EQ(tokenizer.encode("\u00E4", {.add_special = false}),
            (Ids{spm.mark, 3 + 0xC3, 3 + 0xA4}));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0\xFF", 2), {.add_special = false}),
            (Ids{spm.mark, 3, 3 + 0xFF}));
  // A cut sequence: its bytes. llama.cpp takes as many bytes as the lead byte names, and would
  // break the valid characters behind it into bytes too; nothing is gained by that.
  EXPECT_EQ(tokenizer.encode("\xE4"
                             "ab",
                             {.add_special = false}),
            (Ids{spm.mark, 3 + 0xE4, spm.ab}));
}

TEST(SentencePiece, SpacePrefixFollowsControlTokens) {
  Spm spm;
  const EncodeOptions parse{.add_special = true, .parse_special = true};
  const auto tokenizer = Tokenizer::create(spm.vocab.data);
  EXPECT_EQ(tokenizer.encode("</s>ab", parse), (Ids{1, 2, spm.mark_a, spm.b}));
  EXPECT_EQ(tokenizer.encode("</s> ab", parse), (Ids{1, 2, spm.mark, spm.mark_a, spm.b}));
  spm.vocab.data.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::create(spm.vocab.data).encode("</s>ab", parse), (Ids{1, 2, spm.ab}));
  spm.vocab.data.strip_after_control = true;
  EXPECT_EQ(Tokenizer::create(spm.vocab.data).encode("</s> \nab", parse), (Ids{1, 2, spm.ab}));
}

TEST(SentencePiece, AnyBytesComeBack) {
  const Spm spm;
  const auto tokenizer = Tokenizer::create(spm.vocab.data);
  EXPECT_TRUE(rc::check("decode(encode(x)) == ' ' + x", [&](const std::string& text) {
    const std::string prefix = text.empty() ? "" : " ";
    RC_ASSERT(decode(tokenizer, tokenizer.encode(text, {.add_special = false})) == prefix + text);
  }));
}

// A token with a mark inside, which no text here reaches, makes the encoder take texts whole.
TEST(SentencePiece, CuttingAtSpacesChangesNothing) {
  const Spm spm;
  Spm whole;
  whole.vocab.token("zz\u2581zz", TokenType::normal, -1);
  const auto cut_tokenizer = Tokenizer::create(spm.vocab.data);
  const auto whole_tokenizer = Tokenizer::create(whole.vocab.data);
  EXPECT_TRUE(rc::check("ids are equal", [&] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("a", "b", " ", "\u2581", "aba"));
    std::string text;
    for (const std::string& part : parts) text += part;
    RC_ASSERT(cut_tokenizer.encode(text) == whole_tokenizer.encode(text));
  }));
}

TEST(SentencePiece, OffsetsPartitionTheText) {
  const Spm spm;
  const auto tokenizer = Tokenizer::create(spm.vocab.data);
  EXPECT_TRUE(rc::check("spans join", [&] {
    const auto text = *text_of("aab  b\xC3\xA4");
    size_t pos = 0;
    for (const TokenSpan& span : tokenizer.encode_with_offsets(text)) {
      RC_ASSERT(span.begin == pos);
      RC_ASSERT(span.end >= span.begin);
      pos = span.end;
    }
    RC_ASSERT(pos == text.size());
  }));
}

TEST(Specials, UserTextIsNeverAControlToken) {
  auto vocab = VocabBuilder::byte_level("llama-bpe");
  const int32_t end = vocab.token("<|im_end|>", TokenType::control);
  const int32_t word = vocab.token("word", TokenType::control);  // a whole word, and one by merging
  vocab.merge("w", "o");
  vocab.merge("r", "d");
  vocab.merge("wo", "rd");
  const auto tokenizer = Tokenizer::create(vocab.data);
  for (const int32_t id : tokenizer.encode("word <|im_end|> word")) {
    EXPECT_FALSE(tokenizer.is_control(id));
  }
  EXPECT_EQ(tokenizer.encode("word<|im_end|>", {.parse_special = true}), (Ids{word, end}));
}

TEST(Specials, UserDefinedAlwaysLongestLeftmost) {
  auto vocab = VocabBuilder::byte_level();
  const int32_t two = vocab.token("  ", TokenType::user_defined);
  const int32_t four = vocab.token("    ", TokenType::user_defined);
  const int32_t ab = vocab.token("ab", TokenType::user_defined);
  const int32_t bcd = vocab.token("bcd", TokenType::user_defined);
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_EQ(tokenizer.encode("       "), (Ids{four, two, ' '}));
  EXPECT_EQ(tokenizer.encode("abcd"), (Ids{ab, 'c', 'd'}));
  EXPECT_EQ(tokenizer.encode("bcdab"), (Ids{bcd, ab}));
  EXPECT_EQ(decode(tokenizer, {two, ab}), "  ab");
}

TEST(Specials, ExactlyOneBosAndEos) {
  auto vocab = VocabBuilder::byte_level();
  vocab.data.bos = vocab.token("<s>", TokenType::control);
  vocab.data.eos = vocab.token("<e>", TokenType::control);
  vocab.data.add_bos = vocab.data.add_eos = true;
  const auto tokenizer = Tokenizer::create(vocab.data);
  const EncodeOptions parse{.add_special = true, .parse_special = true};
  const Ids expected = {tokenizer.bos(), 'x', tokenizer.eos()};
  EXPECT_EQ(tokenizer.encode("x"), expected);
  EXPECT_EQ(tokenizer.encode("<s>x", parse), expected);
  EXPECT_EQ(tokenizer.encode("<s>x<e>", parse), expected);
  EXPECT_EQ(tokenizer.encode("x", {.add_special = false}), Ids{'x'});
  EXPECT_EQ(tokenizer.encode(""), (Ids{tokenizer.bos(), tokenizer.eos()}));
}

TEST(Specials, EndOfGeneration) {
  auto vocab = VocabBuilder::byte_level();
  vocab.data.eos = vocab.token("<e>", TokenType::control);
  const int32_t by_name = vocab.token("<|im_end|>");  // published files mark it a normal token
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.eos()));
  EXPECT_TRUE(tokenizer.is_end_of_generation(by_name));
  EXPECT_TRUE(tokenizer.is_control(by_name));
  EXPECT_FALSE(tokenizer.is_end_of_generation('a'));
  EXPECT_FALSE(tokenizer.is_end_of_generation(-1));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr double kSecondsPerMegabyte = 20;
constexpr size_t kLongText = 1 << 17;
#else
constexpr double kSecondsPerMegabyte = 1;
constexpr size_t kLongText = 1 << 20;
#endif

// The shapes that broke others, 1 MB each, in less than a second of CPU time.
class LinearTime : public testing::TestWithParam<const char*> {
 protected:
  LinearTime() {
    while (text_.size() < kLongText) text_ += GetParam();
  }
  void expect_fast(const std::string& what, const std::function<void()>& work) {
    const std::clock_t start = std::clock();
    work();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, kSecondsPerMegabyte) << what;
  }
  std::string text_;
};

TEST_P(LinearTime, Scanners) {
  for (const std::string name :
       {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "falcon", "deepseek-coder"}) {
    expect_fast(name, [&] {
      size_t n_bytes = 0;
      for_each_word(find_pre_tokenizer(name)->stages.data(), text_, 0,
                    [&](size_t begin, size_t end) { n_bytes += end - begin; });
      EXPECT_EQ(n_bytes, text_.size());
    });
  }
}

TEST_P(LinearTime, Encoders) {
  auto bpe = merging_vocab("llama-bpe");
  Spm spm;
  for (size_t n = 2; n <= 64; n *= 2) {
    const std::string half(n / 2, '0');
    bpe.merge(half, half);
    spm.vocab.token(half + half, TokenType::normal, static_cast<float>(n));
  }
  bpe.token("<|im_end|>", TokenType::user_defined);
  for (const VocabBuilder* vocab : {&bpe, &spm.vocab}) {
    const auto tokenizer = Tokenizer::create(vocab->data);
    Ids ids;
    expect_fast(vocab->data.model, [&] {
      ids = tokenizer.encode(text_, {.add_special = false, .parse_special = true});
    });
    const std::string prefix = tokenizer.adds_space_prefix() ? " " : "";
    const bool is_bpe = tokenizer.model() == "gpt2";
    ASSERT_TRUE(decode(tokenizer, ids) == prefix + (is_bpe ? repair_utf8(text_).text : text_));
  }
}

INSTANTIATE_TEST_SUITE_P(Repeated, LinearTime,
                         testing::Values("a", " ", "0", "'Z", "\u4E2D", "\n", "\r\n", "!", "\u0301",
                                         "\xFF", "<", "ab", " \n", "<|im_en", "\u3000", " a",
                                         "a'll"));

struct Broken {
  const char* name;
  ErrorCode code;
  const char* message;
  std::function<void(VocabBuilder&)> damage;
};

void expect_refused(const VocabBuilder& vocab, const Broken& broken) {
  try {
    Tokenizer::create(vocab.data);
    ADD_FAILURE() << broken.name << ": accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), broken.code) << broken.name << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr(broken.message)) << broken.name;
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << broken.name;
  }
}

TEST(Hostile, ByteLevelVocabularies) {
  const auto bad_file = ErrorCode::bad_file, unsupported = ErrorCode::unsupported;
  const Broken kCases[] = {
      {"no pre", unsupported, "tokenizer.ggml.pre: found none; known are",
       [](auto& v) { v.data.pre.reset(); }},
      {"unknown pre", unsupported, "tokenizer.ggml.pre: found 'what'; known are",
       [](auto& v) { v.data.pre = "what"; }},
      {"other model", unsupported, "tokenizer.ggml.model: found 'bert'",
       [](auto& v) { v.data.model = "bert"; }},
      {"no tokens", bad_file, "tokenizer.ggml.tokens: found 0 entries",
       [](auto& v) { v.data.tokens.clear(), v.data.types.clear(), v.data.scores.clear(); }},
      {"short types", bad_file, "token_type: found 255 entries; expected 256",
       [](auto& v) { v.data.types.pop_back(); }},
      {"long scores", bad_file, "scores: found 257", [](auto& v) { v.data.scores.push_back(0); }},
      {"type 7", bad_file, "token_type: token 3 has type 7", [](auto& v) { v.data.types[3] = 7; }},
      {"bos far", bad_file, "bos_token_id: found 256", [](auto& v) { v.data.bos = 256; }},
      {"eos huge", bad_file, "eos_token_id: found 4294967295",
       [](auto& v) { v.data.eos = 0xFFFFFFFF; }},
      {"pad negative", bad_file, "padding_token_id: found -2", [](auto& v) { v.data.pad = -2; }},
      {"duplicate", bad_file, "'a' stands twice, at 97 and 256", [](auto& v) { v.token("a"); }},
      {"no space", bad_file, "merges: merge 0 is 'ab'", [](auto& v) { v.data.merges = {"ab"}; }},
      {"empty merge", bad_file, "merges: merge 0 is ''", [](auto& v) { v.data.merges = {""}; }},
      {"one side", bad_file, "merges: merge 0 is 'a '", [](auto& v) { v.data.merges = {"a "}; }},
      {"left", bad_file, "left side is no token", [](auto& v) { v.data.merges = {"zz a"}; }},
      {"right", bad_file, "right side is no token", [](auto& v) { v.data.merges = {"a zz"}; }},
      {"result", bad_file, "what it makes is no token", [](auto& v) { v.data.merges = {"a b"}; }},
      {"merge twice", bad_file, "stands twice, at 0 and 1",
       [](auto& v) { v.merge("a", "b"), v.merge("a", "b"); }},
      {"bos without id", bad_file, "there is no tokenizer.ggml.bos_token_id",
       [](auto& v) { v.data.add_bos = true; }},
      {"huge special", bad_file, "special token of 5000 bytes",
       [](auto& v) { v.token(std::string(5000, 'x'), TokenType::control); }},
  };
  for (const Broken& broken : kCases) {
    auto vocab = VocabBuilder::byte_level();
    broken.damage(vocab);
    expect_refused(vocab, broken);
  }
}

TEST(Hostile, SentencePieceVocabularies) {
  const auto bad_file = ErrorCode::bad_file;
  const Broken kCases[] = {
      {"no scores", bad_file, "scores: found 0 entries", [](auto& v) { v.data.scores.clear(); }},
      {"score NaN", bad_file, "scores: the score of token 5 is not a number",
       [](auto& v) { v.data.scores[5] = std::numeric_limits<float>::quiet_NaN(); }},
      {"byte name", bad_file, "tokens: token 3 is a byte token named '<0x0>'",
       [](auto& v) { v.data.tokens[3] = "<0x0>"; }},
      {"byte case", bad_file, "named '<0xaF>'", [](auto& v) { v.data.tokens[3] = "<0xaF>"; }},
      {"byte text", bad_file, "named 'x\\x01'", [](auto& v) { v.data.tokens[3] = "x\x01"; }},
  };
  for (const Broken& broken : kCases) {
    auto vocab = VocabBuilder::sentencepiece();
    broken.damage(vocab);
    expect_refused(vocab, broken);
  }
}

TEST(Hostile, InfiniteScoresAndEmptyTokensWork) {
  auto vocab = VocabBuilder::sentencepiece();
  vocab.token("");
  vocab.token("");
  vocab.token("ab", TokenType::normal, -std::numeric_limits<float>::infinity());
  const int32_t abc = vocab.token("abc", TokenType::normal, std::numeric_limits<float>::infinity());
  vocab.data.add_space_prefix = false;
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_EQ(tokenizer.encode("abc", {.add_special = false}), Ids{abc});
}

TEST(Ids, OutOfRangeIsAUsageError) {
  const auto vocab = VocabBuilder::byte_level();
  const auto tokenizer = Tokenizer::create(vocab.data);
  EXPECT_THROW(tokenizer.decode_piece(256), Error);
  EXPECT_THROW(tokenizer.decode_piece(-1), Error);
  EXPECT_THROW(tokenizer.type(256), Error);
  EXPECT_EQ(tokenizer.find("a"), 'a');
  EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
}

}  // namespace
}  // namespace fathom::text

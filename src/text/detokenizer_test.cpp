// SPDX-License-Identifier: Apache-2.0
// Streaming decode: complete characters only, whatever the cut; broken bytes become U+FFFD as in
// the Unicode recommendation.
#include "text/detokenizer.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/support/text_vocab.hpp"
#include "text/unicode.hpp"

namespace fathom::text {
namespace {

bool is_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const int n = utf8_length(text, pos);
    if (n == 0) return false;
    pos += n;
  }
  return true;
}

std::string stream_bytes(const std::string& bytes) {
  const auto vocab = test::VocabBuilder::byte_level();
  const auto tokenizer = Tokenizer::create(vocab.data);
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const char byte : bytes) {
    const std::string piece = detokenizer.push(static_cast<uint8_t>(byte));
    EXPECT_TRUE(is_utf8(piece));
    out += piece;
  }
  return out + detokenizer.flush();
}

TEST(Detokenizer, OnlyCompleteCharactersLeave) {
  const auto vocab = test::VocabBuilder::byte_level();
  const auto tokenizer = Tokenizer::create(vocab.data);
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0xA6), "");
  EXPECT_EQ(detokenizer.push(0x99), "\U0001F999");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push('a'), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

// The examples of the Unicode standard, section 3.9, table 3-8 to 3-11.
TEST(Detokenizer, ReplacesMaximalSubparts) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(stream_bytes("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(stream_bytes("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(stream_bytes("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(stream_bytes("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Detokenizer, ValidTextIsUnchangedAndAnyTextIsValid) {
  EXPECT_TRUE(rc::check("streamed bytes", [](const std::string& bytes) {
    const std::string out = stream_bytes(bytes);
    RC_ASSERT(is_utf8(out));
    if (is_utf8(bytes)) RC_ASSERT(out == bytes);
  }));
}

TEST(Detokenizer, StripsOneLeadingSpaceAndHidesControlTokens) {
  auto vocab = test::VocabBuilder::sentencepiece();
  const int32_t hello = vocab.token("\u2581Hello");
  const auto tokenizer = Tokenizer::create(vocab.data);
  Detokenizer stripped(tokenizer, {.strip_leading_space = true});
  EXPECT_EQ(stripped.push(1), "");
  EXPECT_EQ(stripped.push(hello), "Hello");
  EXPECT_EQ(stripped.push(hello), " Hello");
  Detokenizer whole(tokenizer, {.show_control = true});
  EXPECT_EQ(whole.push(1) + whole.push(hello), "<s> Hello");
}

}  // namespace
}  // namespace fathom::text

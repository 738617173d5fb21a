// SPDX-License-Identifier: Apache-2.0
// Every code point in every length against the textbook encoder, cut sequences, and one-line
// printing.
#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace fathom {
namespace {

// The textbook encoder, without any check of its own.
std::string encode(uint32_t code, int length) {
  std::string out;
  if (length == 1) return std::string(1, static_cast<char>(code));
  const uint32_t lead = length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0;
  out += static_cast<char>(lead | (code >> (6 * (length - 1))));
  for (int i = length - 2; i >= 0; --i) {
    out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  }
  return out;
}

TEST(Utf8, EveryCodePointInEveryLength) {
  for (uint32_t code = 0; code < 0x200000; ++code) {
    const int shortest = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    const bool exists = code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
    for (int length = shortest; length <= 4; ++length) {
      const bool expected = exists && length == shortest;
      ASSERT_EQ(is_valid_utf8(encode(code, length)), expected) << code << " in " << length;
    }
  }
}

TEST(Utf8, CutAndStrayBytes) {
  EXPECT_TRUE(is_valid_utf8(""));
  for (const char* whole : {"\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    const std::string text = whole;
    EXPECT_TRUE(is_valid_utf8("a" + text + text));
    for (size_t n = 1; n < text.size(); ++n) {
      EXPECT_FALSE(is_valid_utf8(text.substr(0, n)));
      EXPECT_FALSE(is_valid_utf8(text.substr(0, n) + "a"));
      EXPECT_FALSE(is_valid_utf8(text.substr(n)));
    }
  }
}

TEST(Utf8, PrintableIsOneShortLine) {
  EXPECT_EQ(printable("g\xc3\xbcnstig"), "g\xc3\xbcnstig");
  EXPECT_EQ(printable(std::string_view("a\nb\0\x7f", 5)), "a\\x0ab\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x85"), "\\xc2\\x85") << "a control character of Latin-1";
  EXPECT_EQ(printable("\xe2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abc\xe2\x82\xac", 5), "abc...") << "no character is cut";
}

}  // namespace
}  // namespace fathom

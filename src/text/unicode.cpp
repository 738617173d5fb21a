// SPDX-License-Identifier: Apache-2.0
// UTF-8 decoding and character classes from utf8proc's categories.
#include "text/unicode.hpp"

#include <utf8proc.h>

namespace fathom::text {
namespace {

constexpr uint8_t L = kLetter, N = kNumber, W = kSpace, P = kPunct, S = kSymbol, X = kOther;

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

uint8_t class_of(uint32_t code_point) {
  if (is_white_space(code_point)) return kSpace;
  const int category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return kLetter;
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return kMark;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return kNumber;
  if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) return kPunct;
  if (category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO) return kSymbol;
  return kOther;
}

constexpr uint32_t kReplacement = 0xFFFD;

bool is_surrogate(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  return pos + 3 <= text.size() && byte(0) == 0xED && byte(1) >= 0xA0 && byte(1) <= 0xBF &&
         (byte(2) & 0xC0) == 0x80;
}

// One character by its lead byte and the number of its continuation bytes alone: overlong forms
// and surrogates pass. {kReplacement, 1} where there is none.
Char decode_lenient(std::string_view text, size_t pos) {
  constexpr Char kBroken{kReplacement, 1, kOther};
  const auto lead = static_cast<uint8_t>(text[pos]);
  if (lead < 0x80) return {lead, 1, kOther};
  const int length = lead < 0xC0 || lead >= 0xF8 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 0 || pos + length > text.size()) return kBroken;
  uint32_t code_point = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[pos + i]);
    if ((byte & 0xC0) != 0x80) return kBroken;
    code_point = code_point << 6 | (byte & 0x3F);
  }
  if (code_point > 0x10FFFF) return kBroken;
  return {code_point, static_cast<uint8_t>(length), kOther};
}

}  // namespace

const uint8_t kAsciiClass[128] = {
    X, X, X, X, X, X, X, X, X, W, W, W, W, W, X, X,  // controls
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,  //
    W, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P,  //  !"#$%&'()*+,-./
    N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P,  // 0123456789:;<=>?
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,  // @A...O
    L, L, L, L, L, L, L, L, L, L, L, P, P, P, S, P,  // P...Z[\]^_
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,  // `a...o
    L, L, L, L, L, L, L, L, L, L, L, P, S, P, S, X,  // p...z{|}~
};

int utf8_length(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) -> uint8_t {
    return pos + i < text.size() ? static_cast<uint8_t>(text[pos + i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (pos >= text.size()) return 0;
  const uint8_t b0 = byte(0), b1 = byte(1);
  if (b0 < 0x80) return 1;
  if (b0 < 0xC2) return 0;
  if (b0 < 0xE0) return continues(1) ? 2 : 0;
  if (b0 < 0xF0) {
    const uint8_t lowest = b0 == 0xE0 ? 0xA0 : 0x80, highest = b0 == 0xED ? 0x9F : 0xBF;
    return b1 >= lowest && b1 <= highest && continues(2) ? 3 : 0;
  }
  if (b0 > 0xF4) return 0;
  const uint8_t lowest = b0 == 0xF0 ? 0x90 : 0x80, highest = b0 == 0xF4 ? 0x8F : 0xBF;
  return b1 >= lowest && b1 <= highest && continues(2) && continues(3) ? 4 : 0;
}

Char decode_slow(std::string_view text, size_t pos) {
  const int length = utf8_length(text, pos);
  if (length == 0) {
    return {kNoCodePoint, static_cast<uint8_t>(is_surrogate(text, pos) ? 3 : 1), kOther};
  }
  const auto byte = [&](int i) { return static_cast<uint8_t>(text[pos + i]); };
  uint32_t code_point = length == 1 ? byte(0) : byte(0) & (0x7F >> length);
  for (int i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  return {code_point, static_cast<uint8_t>(length), class_of(code_point)};
}

RepairedText repair_utf8(std::string_view input) {
  RepairedText out;
  out.text.reserve(input.size());
  out.offsets.reserve(input.size() + 1);
  for (size_t pos = 0; pos < input.size();) {
    const Char c = decode_lenient(input, pos);
    append_utf8(c.code_point, out.text);
    out.offsets.resize(out.text.size(), static_cast<uint32_t>(pos));
    pos += c.n_bytes;
  }
  out.offsets.push_back(static_cast<uint32_t>(input.size()));
  return out;
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

}  // namespace fathom::text

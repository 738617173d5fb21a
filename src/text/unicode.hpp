// SPDX-License-Identifier: Apache-2.0
// One character of a byte string with its class, as the pre-tokenizers see it. A byte that starts
// no well-formed UTF-8 sequence is a character of its own, of class `other`; so is a surrogate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::text {

// Every character has exactly one of these bits, so that a mask is a set of characters.
enum CharClass : uint8_t {
  kLetter = 1,   // \p{L}
  kNumber = 2,   // \p{N}
  kSpace = 4,    // \s: the Unicode property White_Space
  kPunct = 8,    // \p{P}
  kSymbol = 16,  // \p{S}
  kMark = 32,    // \p{M}
  kOther = 64,   // the rest: controls, unassigned, broken bytes
};

constexpr uint32_t kNoCodePoint = 0xFFFFFFFF;

struct Char {
  uint32_t code_point;  // kNoCodePoint for a broken byte and at the end
  uint8_t n_bytes;      // 0 at the end
  uint8_t char_class;   // 0 at the end

  bool is(int classes) const { return (char_class & classes) != 0; }
};

// Length of the well-formed UTF-8 sequence at `pos` (RFC 3629: no overlong forms, no surrogates),
// 0 if there is none.
int utf8_length(std::string_view text, size_t pos);

Char decode_slow(std::string_view text, size_t pos);
extern const uint8_t kAsciiClass[128];

inline Char char_at(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {kNoCodePoint, 0, 0};
  const auto byte = static_cast<uint8_t>(text[pos]);
  if (byte < 0x80) return {byte, 1, kAsciiClass[byte]};
  return decode_slow(text, pos);
}

// End of the run of characters of these classes that starts at `pos`.
inline size_t skip(std::string_view text, size_t pos, int classes) {
  for (Char c = char_at(text, pos); c.is(classes); c = char_at(text, pos)) pos += c.n_bytes;
  return pos;
}

// A text as byte-level BPE reads it: llama.cpp's decoder, so that the ids are those of the peer.
// A byte that starts no sequence becomes U+FFFD (one for each byte of a truncated sequence); what
// has the right number of continuation bytes is decoded and written again in its shortest form, a
// surrogate as it stands. Past U+10FFFF, where llama.cpp gives up, each byte is U+FFFD as well.
struct RepairedText {
  std::string text;
  std::vector<uint32_t>
      offsets;  // [text.size() + 1] where each byte's character began in the input
};
RepairedText repair_utf8(std::string_view input);

// REQUIRES: a code point below 0x110000.
void append_utf8(uint32_t code_point, std::string& out);

}  // namespace fathom::text

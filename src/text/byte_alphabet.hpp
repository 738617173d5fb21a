// SPDX-License-Identifier: Apache-2.0
// The alphabet in which byte-level vocabularies write bytes: printable Latin-1 stands for itself,
// the 68 other bytes for U+0100 and up, in order. All its characters take one or two bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::text {

struct ByteAlphabet {
  std::array<uint16_t, 256> code_point;   // of each byte
  std::array<int16_t, 0x144> byte_value;  // of each code point, -1 outside the alphabet
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet{};
  alphabet.byte_value.fill(-1);
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    alphabet.code_point[byte] = printable ? static_cast<uint16_t>(byte) : next++;
    alphabet.byte_value[alphabet.code_point[byte]] = static_cast<int16_t>(byte);
  }
  return alphabet;
}
inline constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

// Appends the characters that stand for these bytes.
void append_byte_alphabet(std::string_view bytes, std::string& out);
// Appends the bytes that these characters stand for; characters outside the alphabet stay.
void append_alphabet_bytes(std::string_view characters, std::string& out);

}  // namespace fathom::text

// SPDX-License-Identifier: Apache-2.0
// Bytes to the byte-level alphabet and back.
#include "text/byte_alphabet.hpp"

#include "text/unicode.hpp"

namespace fathom::text {

void append_byte_alphabet(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    append_utf8(kByteAlphabet.code_point[static_cast<uint8_t>(byte)], out);
  }
}

void append_alphabet_bytes(std::string_view characters, std::string& out) {
  for (size_t pos = 0; pos < characters.size();) {
    const Char c = char_at(characters, pos);
    const int byte = c.code_point < kByteAlphabet.byte_value.size()
                         ? kByteAlphabet.byte_value[c.code_point]
                         : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out.append(characters, pos, c.n_bytes);
    }
    pos += c.n_bytes;
  }
}

}  // namespace fathom::text

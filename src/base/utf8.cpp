// SPDX-License-Identifier: Apache-2.0
// Well-formed UTF-8 by table 3-7 of the Unicode standard; any other byte is shown as \xNN.
#include "base/utf8.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace fathom {
namespace {

// Bytes of the well-formed sequence at the head of `bytes`; 0 when there is none.
size_t sequence_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  // The second byte's range excludes overlong forms, surrogates and code points past U+10FFFF.
  uint8_t low = 0x80, high = 0xbf;
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  }
  if (length == 0 || bytes.size() < length) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = sequence_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view bytes, size_t max_bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t length = sequence_length(bytes);
    const auto lead = static_cast<uint8_t>(bytes[0]);
    const bool shown = length > 1 ? !(lead == 0xc2 && static_cast<uint8_t>(bytes[1]) < 0xa0)
                                  : length == 1 && lead >= 0x20 && lead != 0x7f;
    const size_t taken = length == 0 ? 1 : length;
    if (out.size() + (shown ? taken : 4 * taken) > max_bytes) return out + "...";
    for (size_t i = 0; i < taken; ++i) {
      if (shown) {
        out += bytes[i];
      } else {
        out += fmt::format("\\x{:02x}", static_cast<uint8_t>(bytes[i]));
      }
    }
    bytes.remove_prefix(taken);
  }
  return out;
}

}  // namespace fathom

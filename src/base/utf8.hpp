// SPDX-License-Identifier: Apache-2.0
// Strings of unknown origin: is it UTF-8, and how to show it on one line of a message.
#pragma once

#include <string>
#include <string_view>

namespace fathom {

// Well-formed UTF-8 as in RFC 3629: shortest forms only, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view bytes);

// For messages: control characters and bytes that are not UTF-8 become \xNN, and what is longer
// than max_bytes ends in "...".
std::string printable(std::string_view bytes, size_t max_bytes = 96);

}  // namespace fathom

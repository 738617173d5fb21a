// SPDX-License-Identifier: Apache-2.0
// The streaming side of decoding. How much of a broken sequence one U+FFFD replaces follows the
// Unicode recommendation: its longest part that could have started a character.
#include "text/detokenizer.hpp"

#include "text/unicode.hpp"

namespace fathom::text {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// Length of the part at the front of `bytes` that could start a character: the lead byte and the
// continuation bytes that fit it, found by completing each prefix. 0 if the lead byte fits none.
size_t possible_start(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  size_t n = 0;
  while (n < bytes.size() && n + 1 < length) {
    std::string tried(bytes.substr(0, n + 1));
    // E0 and F0 allow no low second byte, ED and F4 no high one: one of the two fits.
    const char fill = lead == 0xE0 || lead == 0xF0 ? '\xBF' : '\x80';
    while (tried.size() < length) tried.push_back(tried.size() == 1 ? fill : '\x80');
    if (utf8_length(tried, 0) == 0) break;
    ++n;
  }
  return n;
}

}  // namespace

void take_complete_utf8(std::string& bytes, std::string& out) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    if (const int length = utf8_length(bytes, pos); length > 0) {
      out.append(bytes, pos, length);
      pos += length;
      continue;
    }
    const size_t start = possible_start(std::string_view(bytes).substr(pos));
    if (start > 0 && pos + start == bytes.size()) break;  // it may still become a character
    out += kReplacement;
    pos += start > 0 ? start : 1;
  }
  bytes.erase(0, pos);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(options) {}

std::string Detokenizer::push(int32_t id) {
  std::string out;
  if (tokenizer_.is_control(id) && !options_.show_control) return out;
  const size_t before = pending_.size();
  tokenizer_.append_piece(id, pending_);
  if (at_start_ && !tokenizer_.is_control(id) && pending_.size() > before) {
    if (options_.strip_leading_space && pending_[before] == ' ') pending_.erase(before, 1);
    at_start_ = false;
  }
  take_complete_utf8(pending_, out);
  return out;
}

std::string Detokenizer::flush() {
  const bool cut_off = !pending_.empty();
  pending_.clear();
  return cut_off ? std::string(kReplacement) : std::string();
}

}  // namespace fathom::text

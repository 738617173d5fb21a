// SPDX-License-Identifier: Apache-2.0
// Token ids to text as they come: only complete UTF-8 leaves. Bytes that can no longer become a
// code point leave as U+FFFD, one per maximal broken sequence.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.hpp"

namespace fathom::text {

struct DetokenizerOptions {
  bool show_control = false;         // write the names of control tokens
  bool strip_leading_space = false;  // the ids start a text whose encoder added a space
};

class Detokenizer {
 public:
  // The tokenizer must outlive this.
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  // The text that this token completes; often empty within a character.
  std::string push(int32_t id);
  // What is left at the end: "" or one U+FFFD for a character that was cut off.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  bool at_start_ = true;
  std::string pending_;  // bytes of an incomplete character, at most three
};

// Moves the complete part of `bytes` to the end of `out`, broken bytes replaced, and leaves in
// `bytes` what could still become a character.
void take_complete_utf8(std::string& bytes, std::string& out);

}  // namespace fathom::text

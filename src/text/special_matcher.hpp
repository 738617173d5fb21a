// SPDX-License-Identifier: Apache-2.0
// Finds tokens that are matched as whole strings, before any encoding: leftmost first, of those
// the longest.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace fathom::text {

class SpecialMatcher {
 public:
  // Bounds the work per byte of text that a hostile file can cause.
  static constexpr size_t kMaxTokenBytes = 1024;

  // Makes room for the tokens of these types. `vocabulary` must outlive this.
  enum class Select { user_defined, all };
  SpecialMatcher(const Vocabulary& vocabulary, Select select);

  bool empty() const { return tokens_.empty(); }

  struct Match {
    size_t begin;
    size_t end;
    int32_t id;  // -1: none, and begin = end = the end of the text
  };
  Match find(std::string_view text, size_t pos) const;

 private:
  struct Token {
    std::string_view text;
    int32_t id;
  };
  std::vector<Token> tokens_;  // in the order of their texts
  std::bitset<256> first_bytes_;
};

}  // namespace fathom::text

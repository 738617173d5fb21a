// SPDX-License-Identifier: Apache-2.0
// Syllables are consonant + vowel, so that in running text no two possible merges of one level
// overlap, and every token of at most two syllables is reached by encoding its own text.
#include "convert/synth_vocab.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"

namespace fathom::convert {
namespace {

constexpr std::string_view kConsonants = "bcdfghjklmnpqrstvwxyz";
constexpr std::string_view kVowels = "aeiou";
constexpr int64_t kSyllables = static_cast<int64_t>(kConsonants.size() * kVowels.size());
constexpr int64_t kStride = 7919;         // a prime: visits each level's words in scattered order
constexpr const char* kBlank = "\u0120";  // GPT-2's spelling of the byte 0x20

std::string utf8_of(uint32_t code_point) {  // below U+0800
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

bool printable_byte(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Printable bytes stand for themselves and come first; the others follow as U+0100 and up.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    if (printable_byte(byte)) tokens.push_back(utf8_of(static_cast<uint32_t>(byte)));
  }
  for (uint32_t next = 0x100; tokens.size() < 256; ++next) tokens.push_back(utf8_of(next));
  return tokens;
}

std::string syllable(int64_t i) {
  const auto n_vowels = static_cast<int64_t>(kVowels.size());
  return {kConsonants[static_cast<size_t>(i / n_vowels)],
          kVowels[static_cast<size_t>(i % n_vowels)]};
}
std::string word(int64_t i) { return syllable(i / kSyllables) + syllable(i % kSyllables); }

struct Merge {
  std::string left, right;
};
// The merges in order of rank: level after level, each of words that earlier levels made.
struct Level {
  int64_t size;
  Merge (*at)(int64_t i);
};
constexpr Level kLevels[] = {
    {kSyllables,
     [](int64_t i) {
       return Merge{syllable(i).substr(0, 1), syllable(i).substr(1)};
     }},
    {kSyllables,
     [](int64_t i) {
       return Merge{kBlank, syllable(i)};
     }},
    {kSyllables * kSyllables,
     [](int64_t i) {
       return Merge{syllable(i / kSyllables), syllable(i % kSyllables)};
     }},
    {kSyllables * kSyllables,
     [](int64_t i) {
       return Merge{kBlank + syllable(i / kSyllables), syllable(i % kSyllables)};
     }},
    {kSyllables * kSyllables * kSyllables,
     [](int64_t i) {
       return Merge{word(i / kSyllables), syllable(i % kSyllables)};
     }},
};

void add_merges(int64_t n_text, SynthVocab& vocab) {
  for (const Level& level : kLevels) {
    const int64_t room = n_text - static_cast<int64_t>(vocab.tokens.size());
    for (int64_t k = 0; k < std::min(level.size, room); ++k) {
      const Merge merge = level.at(k * kStride % level.size);
      vocab.merges.push_back(merge.left + " " + merge.right);
      vocab.tokens.push_back(merge.left + merge.right);
    }
  }
}

uint32_t id_of(const SynthVocab& vocab, const char* token) {
  const auto at = std::find(vocab.tokens.begin() + vocab.n_text, vocab.tokens.end(), token);
  FATHOM_CHECK(at != vocab.tokens.end(), "a shape names its bos and eos among its control tokens");
  return static_cast<uint32_t>(at - vocab.tokens.begin());
}

}  // namespace

SynthVocab make_synth_vocab(const ModelShape& shape) {
  int64_t most = 256 + shape.n_control;
  for (const Level& level : kLevels) most += level.size;
  if (shape.vocab_size < 256 + shape.n_control || shape.vocab_size > most) {
    fail(ErrorCode::usage, "a vocabulary of {} tokens for shape {}; choose {} to {}",
         shape.vocab_size, shape.name, 256 + shape.n_control, most);
  }
  SynthVocab vocab{};
  vocab.n_text = shape.vocab_size - shape.n_control;
  vocab.tokens = byte_tokens();
  vocab.tokens.reserve(static_cast<size_t>(shape.vocab_size));
  add_merges(vocab.n_text, vocab);
  const auto& names = shape.control.names;
  for (int i = 0; i < shape.n_control; ++i) {
    const auto index = static_cast<size_t>(i);
    vocab.tokens.push_back(index < names.size() ? names[index] : fmt::format("<|reserved_{}|>", i));
  }
  vocab.types.assign(static_cast<size_t>(vocab.n_text), kNormalToken);
  vocab.types.resize(static_cast<size_t>(shape.vocab_size), kControlToken);
  vocab.bos_id = id_of(vocab, shape.control.bos);
  vocab.eos_id = id_of(vocab, shape.control.eos);
  return vocab;
}

}  // namespace fathom::convert

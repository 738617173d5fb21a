// SPDX-License-Identifier: Apache-2.0
// The table of merges and the encoding of words. Words that came before in the same text are
// copied from the output: natural text repeats most of them.
#include "text/bpe_encoder.hpp"

#include <algorithm>
#include <bit>

#include "base/utf8.hpp"
#include "text/byte_alphabet.hpp"
#include "text/unicode.hpp"
#include "text/vocab_error.hpp"

namespace fathom::text {
namespace {

uint64_t hash_pair(uint64_t pair) {
  const auto product =
      static_cast<unsigned __int128>(pair ^ 0xD1B54A32D192ED03) * 0x9E3779B97F4A7C15;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr size_t kBatch = 16;
constexpr const char* kMergesKey = "tokenizer.ggml.merges";

uint64_t make_pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges,
                       const PreTokenizer& pre_tokenizer)
    : vocabulary_(vocabulary),
      pre_tokenizer_(pre_tokenizer),
      slots_(table_capacity(merges.size()), Slot{0, {}}),
      mask_(slots_.size() - 1) {
  // Creation is part of the time to the first token and made of cache misses, so it goes in batches
  // of three passes: the misses of one merge overlap with those of the others.
  for (size_t first = 0; first < merges.size(); first += kBatch) {
    add_batch(merges, first, std::min(kBatch, merges.size() - first));
  }
}

void BpeEncoder::add_batch(const std::vector<std::string_view>& merges, size_t first, size_t n) {
  const StringTable& table = vocabulary_.table();
  const auto bad = [&](size_t rank, std::string_view what) {
    fail_key(ErrorCode::bad_file, kMergesKey, "merge {} is '{}': {}", rank, printable(merges[rank]),
             what);
  };
  struct Hashes {
    uint64_t left, right, merged;
  };
  Hashes hashes[kBatch];
  std::string merged_text;
  for (size_t i = 0; i < n; ++i) {
    const std::string_view text = merges[first + i];
    const size_t space = text.find(' ', 1);  // a left side may itself be a space
    if (space == std::string_view::npos || space + 1 == text.size()) {
      bad(first + i, "expected two tokens with a space between them");
    }
    const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
    merged_text.assign(left).append(right);
    hashes[i] = {hash_bytes(left), hash_bytes(right), hash_bytes(merged_text)};
    table.prefetch(hashes[i].left);
    table.prefetch(hashes[i].right);
    table.prefetch(hashes[i].merged);
  }
  Slot batch[kBatch];
  for (size_t i = 0; i < n; ++i) {
    const int32_t left = table.find_hash(hashes[i].left);
    const int32_t right = table.find_hash(hashes[i].right);
    const int32_t merged = table.find_hash(hashes[i].merged);
    if (left < 0) bad(first + i, "its left side is no token");
    if (right < 0) bad(first + i, "its right side is no token");
    if (merged < 0) bad(first + i, "what it makes is no token");
    batch[i] = {make_pair_key(left, right), {static_cast<uint32_t>(first + i), merged}};
    __builtin_prefetch(&slots_[hash_pair(batch[i].pair) & mask_], 1);
  }
  for (size_t i = 0; i < n; ++i) {
    // Plain text never becomes a control token, not even by merging.
    if (!vocabulary_.is_control(batch[i].merge.id)) insert(batch[i], merges[first + i]);
  }
}

void BpeEncoder::insert(const Slot& added, std::string_view text) {
  const uint32_t rank = added.merge.priority;
  size_t at = hash_pair(added.pair) & mask_;
  for (int n = 0; n < StringTable::kMaxProbes; ++n, at = (at + 1) & mask_) {
    if (slots_[at].merge.id < 0) {
      slots_[at] = added;
      return;
    }
    if (slots_[at].pair == added.pair) {
      fail_key(ErrorCode::bad_file, kMergesKey, "'{}' stands twice, at {} and {}", printable(text),
               slots_[at].merge.priority, rank);
    }
  }
  fail_key(ErrorCode::bad_file, kMergesKey,
           "merge {}: {} merges share one hash; the file is hostile", rank,
           StringTable::kMaxProbes);
}

Merge BpeEncoder::find(int32_t left, int32_t right) const {
  const uint64_t pair = make_pair_key(left, right);
  for (size_t at = hash_pair(pair) & mask_;; at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.merge.id < 0) return {};
    if (slot.pair == pair) return slot.merge;
  }
}

void BpeEncoder::encode_word(std::string_view word, size_t offset, SymbolMerger& merger,
                             std::vector<TokenSpan>& out) const {
  if (pre_tokenizer_.whole_words && word.size() <= vocabulary_.max_token_bytes()) {
    std::string characters;
    append_byte_alphabet(word, characters);
    if (const int32_t id = vocabulary_.find_text(characters); id >= 0) {
      out.push_back({id, offset, offset + word.size()});
      return;
    }
  }
  merger.symbols.clear();
  merger.symbols.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    merger.symbols.push_back({vocabulary_.byte_ids[static_cast<uint8_t>(word[i])],
                              static_cast<uint32_t>(i),
                              1,
                              0,
                              0,
                              {}});
  }
  merger.run([&](const Symbol& left, const Symbol& right) {
    return left.id < 0 || right.id < 0 ? Merge{} : find(left.id, right.id);
  });
  for (const Symbol& symbol : merger.symbols) {
    if (symbol.n_bytes == 0 || symbol.id < 0) continue;
    const size_t begin = offset + symbol.begin;
    out.push_back({symbol.id, begin, begin + symbol.n_bytes});
  }
}

void BpeEncoder::encode(std::string_view text, size_t begin, size_t end,
                        std::vector<TokenSpan>& out) const {
  const std::string_view input = text.substr(begin, end - begin);
  if (is_valid_utf8(input)) {
    encode_words(text, begin, end, out);
    return;
  }
  const RepairedText repaired = repair_utf8(input);
  const size_t first = out.size();
  encode_words(repaired.text, 0, repaired.text.size(), out);
  for (size_t i = first; i < out.size(); ++i) {
    out[i].begin = begin + repaired.offsets[out[i].begin];
    out[i].end = begin + repaired.offsets[out[i].end];
  }
}

void BpeEncoder::encode_words(std::string_view text, size_t begin, size_t end,
                              std::vector<TokenSpan>& out) const {
  // Where in the text and in the output a word was last seen.
  struct Seen {
    uint32_t offset, n_bytes;
    size_t first_token, n_tokens;
  };
  std::vector<Seen> seen(std::clamp<size_t>(std::bit_ceil((end - begin) / 4 + 1), 16, 8192));
  SymbolMerger merger;
  for_each_word(pre_tokenizer_.stages.data(), text.substr(begin, end - begin), begin,
                [&](size_t word_begin, size_t word_end) {
                  const std::string_view word = text.substr(word_begin, word_end - word_begin);
                  Seen& entry = seen[hash_bytes(word) & (seen.size() - 1)];
                  if (entry.n_bytes != 0 && text.substr(entry.offset, entry.n_bytes) == word) {
                    const size_t shift = word_begin - entry.offset;
                    for (size_t i = 0; i < entry.n_tokens; ++i) {
                      const TokenSpan token = out[entry.first_token + i];
                      out.push_back({token.id, token.begin + shift, token.end + shift});
                    }
                    return;
                  }
                  const size_t first_token = out.size();
                  encode_word(word, word_begin, merger, out);
                  entry = {static_cast<uint32_t>(word_begin), static_cast<uint32_t>(word.size()),
                           first_token, out.size() - first_token};
                });
}

}  // namespace fathom::text

// SPDX-License-Identifier: Apache-2.0
// Hashes of the logits of a teacher-forced text, made in the ways whose bits must be equal.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tests/support/engines.hpp"

namespace fathom::test {

using Hashes = std::vector<uint64_t>;

inline Hashes prefill_all(const std::string& path, const OpenOptions& options,
                          std::span<const int32_t> tokens) {
  const auto engine = engine::Engine::open(path, options);
  engine::Sequence sequence(engine);
  return prefill_hashes(sequence, tokens);
}

inline Hashes decode_all(const std::string& path, const OpenOptions& options,
                         std::span<const int32_t> tokens) {
  const auto engine = engine::Engine::open(path, options);
  engine::Sequence sequence(engine);
  return decode_hashes(sequence, tokens);
}

// Three sequences in every step; the watched one, which reads `tokens`, sits in `place`, its mates
// are deeper, shallower, and of other tokens. Pages of 16 make their pages interleave.
inline Hashes batch_all(const std::string& path, OpenOptions options,
                        std::span<const int32_t> tokens, int place) {
  options.max_sequences = 3;
  options.page_tokens = 16;
  const auto engine = engine::Engine::open(path, options);
  engine::Sequence watched(engine), deep(engine), shallow(engine);
  deep.prefill(teacher_tokens(70, engine->info().vocab_size), LogitsMode::skip);
  Hashes out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<engine::DecodeBatch::Entry> batch{{&deep, tokens[tokens.size() - 1 - i]},
                                                  {&shallow, tokens[i / 2]}};
    batch.insert(batch.begin() + place, {&watched, tokens[i]});
    engine::DecodeBatch::step(*engine, batch, LogitsMode::last);
    out.push_back(engine::logits_hash(watched.logits()));
  }
  return out;
}

}  // namespace fathom::test

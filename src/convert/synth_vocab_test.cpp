// SPDX-License-Identifier: Apache-2.0
// The generated vocabularies are valid for every shape: unique tokens, all 256 bytes first,
// merges of tokens that exist, control tokens at the published ids.
#include "convert/synth_vocab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "convert/model_shape.hpp"

namespace fathom::convert {
namespace {

TEST(SynthVocab, IsValidForEveryShape) {
  for (const ModelShape& shape : all_model_shapes()) {
    SCOPED_TRACE(shape.name);
    const SynthVocab vocab = make_synth_vocab(shape);
    ASSERT_EQ(static_cast<int64_t>(vocab.tokens.size()), shape.vocab_size);
    ASSERT_EQ(vocab.types.size(), vocab.tokens.size());
    std::unordered_map<std::string, size_t> ids;
    for (size_t id = 0; id < vocab.tokens.size(); ++id) {
      ASSERT_FALSE(vocab.tokens[id].empty());
      ASSERT_TRUE(ids.emplace(vocab.tokens[id], id).second) << "twice: " << vocab.tokens[id];
    }
    ASSERT_EQ(vocab.merges.size(), static_cast<size_t>(vocab.n_text - 256));
    for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
      const std::string& merge = vocab.merges[rank];
      const size_t blank = merge.find(' ');
      const std::string left = merge.substr(0, blank), right = merge.substr(blank + 1);
      ASSERT_LT(ids.at(left), 256 + rank) << merge;
      ASSERT_LT(ids.at(right), 256 + rank) << merge;
      ASSERT_EQ(ids.at(left + right), 256 + rank) << merge;
    }
  }
}

TEST(SynthVocab, BytesAreInGpt2Order) {
  const SynthVocab vocab = make_synth_vocab(find_model_shape("tiny-kquant"));
  EXPECT_EQ(vocab.tokens[0], "!");
  EXPECT_EQ(vocab.tokens[93], "~");
  EXPECT_EQ(vocab.tokens[94], "\u00a1");
  EXPECT_EQ(vocab.tokens[187], "\u00ff");
  EXPECT_EQ(vocab.tokens[188], "\u0100") << "byte 0";
  EXPECT_EQ(vocab.tokens[188 + 32], "\u0120") << "the blank";
  EXPECT_EQ(vocab.tokens[255], "\u0143") << "byte 0xad";
}

TEST(SynthVocab, ControlTokensHaveThePublishedIds) {
  const auto vocab_of = [](const char* name) { return make_synth_vocab(find_model_shape(name)); };
  const SynthVocab llama = vocab_of("llama-3.1-8b");
  EXPECT_EQ(llama.bos_id, 128000u);
  EXPECT_EQ(llama.eos_id, 128009u);
  for (const char* name : {"qwen2.5-0.5b", "qwen2.5-7b", "qwen3-8b"}) {
    const SynthVocab qwen = vocab_of(name);
    EXPECT_EQ(qwen.bos_id, 151643u);
    EXPECT_EQ(qwen.eos_id, 151645u);
    EXPECT_EQ(qwen.types[151642], kNormalToken);
    EXPECT_EQ(qwen.types[151643], kControlToken);
  }
}

TEST(SynthVocab, SizesOutsideTheRangeAreRefused) {
  ModelShape shape = find_model_shape("tiny-llama");
  shape.vocab_size = 256 + shape.n_control;
  EXPECT_TRUE(make_synth_vocab(shape).merges.empty());
  --shape.vocab_size;
  EXPECT_THROW(make_synth_vocab(shape), Error);
  shape.vocab_size = int64_t{1} << 30;
  EXPECT_THROW(make_synth_vocab(shape), Error);
}

}  // namespace
}  // namespace fathom::convert

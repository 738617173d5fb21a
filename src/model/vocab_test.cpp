// SPDX-License-Identifier: Apache-2.0
// What the tokenizer refuses is refused with the place of the key in the file.
#include "model/vocab.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "tests/support/edited_gguf.hpp"

namespace fathom {
namespace {

using test::EditedGguf;
using test::GgufEdit;

constexpr const char* kFixture = FATHOM_SOURCE_DIR "/tests/fixtures/llama_plain.gguf";

template <class Add>
GgufEdit set_key(const std::string& key, Add add) {
  return {{key}, [=](gguf::Writer& writer) { add(writer, key); }, {}, {}};
}

// The message of the refusal, and the offset of `key` in the file.
std::pair<std::string, uint64_t> refusal(const std::string& key, const GgufEdit& edit,
                                         ErrorCode code) {
  const EditedGguf edited(kFixture, edit);
  const gguf::File file = gguf::File::open(edited.path());
  const gguf::Value* value = file.find(key);
  try {
    tokenizer_from_gguf(file);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    std::string message = e.what();
    EXPECT_THAT(message, testing::StartsWith(edited.path() + ": "));
    return {message.substr(edited.path().size() + 2), value ? value->offset : 0};
  }
  return {"accepted", 0};
}

TEST(TokenizerFromGguf, RefusalsNameTheOffsetOfTheValue) {
  const auto expect = [](const std::string& key, ErrorCode code, const std::string& problem,
                         auto add) {
    const auto [message, offset] = refusal(key, set_key(key, add), code);
    EXPECT_THAT(message, testing::StartsWith(
                             fmt::format("key '{}' at offset {}: {}", key, offset, problem)));
  };
  using Writer = gguf::Writer;
  using Key = const std::string&;
  const auto bad_file = ErrorCode::bad_file, unsupported = ErrorCode::unsupported;
  expect("tokenizer.ggml.model", unsupported, "found 'bert'; supported are",
         [](Writer& w, Key key) { w.add_string(key, "bert"); });
  expect("tokenizer.ggml.bos_token_id", bad_file, "found 9999; the vocabulary has 260 tokens",
         [](Writer& w, Key key) { w.add_u32(key, 9999); });
  expect("tokenizer.ggml.scores", bad_file, "found 1 entries; expected 260, one per token",
         [](Writer& w, Key key) { w.add_array(key, std::vector<float>{1}); });
  expect("tokenizer.ggml.token_type", bad_file, "token 259 has type 7; expected 0 to 6",
         [](Writer& w, Key key) {
           std::vector<int32_t> types(260, 1);
           types.back() = 7;
           w.add_array(key, types);
         });
}

TEST(TokenizerFromGguf, AMissingKeyHasNoOffset) {
  const std::string key = "tokenizer.ggml.model";
  const auto [message, offset] = refusal(key, {{key}, {}, {}, {}}, ErrorCode::bad_file);
  EXPECT_THAT(message, testing::StartsWith("key 'tokenizer.ggml.model' is missing"));
}

}  // namespace
}  // namespace fathom

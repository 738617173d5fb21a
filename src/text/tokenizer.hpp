// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for byte-level BPE ("gpt2") and SentencePiece ("llama")
// vocabularies. Text is a string of arbitrary bytes. It comes back unchanged, NUL as well, but for:
// bytes that the vocabulary has no token for, which are left out, see has_byte(); invalid UTF-8 in
// byte-level BPE, which is read with U+FFFD in its place, as llama.cpp does, see repair_utf8() (in
// SentencePiece it is byte tokens); U+2581, SentencePiece's own mark, which becomes a space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::text {

// The longest text that can be encoded: symbol positions take 32 bits.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

// What a token is, numbered as in the file (`tokenizer.ggml.token_type`).
enum class TokenType : uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// A vocabulary as the file states it. The views must stay valid as long as a Tokenizer made from
// them lives: they point into the mapped file, which is not copied.
struct VocabData {
  std::string model;               // "gpt2" or "llama"
  std::optional<std::string> pre;  // required for "gpt2"
  std::vector<std::string_view> tokens;
  std::vector<float> scores;             // empty or one per token; required for "llama"
  std::vector<int32_t> types;            // empty (all normal) or one per token
  std::vector<std::string_view> merges;  // "left right", best first; required for "gpt2"

  // Special ids; -1 = the file names none.
  int64_t bos = -1;
  int64_t eos = -1;
  int64_t unk = -1;
  int64_t sep = -1;
  int64_t pad = -1;
  int64_t eot = -1;
  int64_t eom = -1;

  // Absent values take the default of the model or pre-tokenizer.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  // White space after a matched control token is dropped (Phi-3; the file cannot say so itself).
  bool strip_after_control = false;
};

struct EncodeOptions {
  // Put BOS in front and EOS behind as the file asks; a BOS that the text brings is not doubled.
  bool add_special = true;
  // Match the text of control tokens. Never set it for text that comes from a user.
  bool parse_special = false;
};

// One token of a text. Bytes [begin, end) of the text are what it stands for; empty for tokens that
// were added.
struct TokenSpan {
  int32_t id;
  size_t begin;
  size_t end;
};

class Tokenizer {
 public:
  // Throws VocabError{bad_file} for a damaged vocabulary and VocabError{unsupported} for a
  // tokenizer model or pre-tokenizer without code here; both name the key.
  static Tokenizer create(const VocabData& vocab);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  std::vector<TokenSpan> encode_with_offsets(std::string_view text,
                                             EncodeOptions options = {}) const;

  // The bytes a token stands for; control tokens give their name. Ids out of range throw
  // Error{usage}.
  std::string decode_piece(int32_t id) const;
  void append_piece(int32_t id, std::string& out) const;

  int32_t n_vocab() const;
  TokenType type(int32_t id) const;
  bool is_control(int32_t id) const;            // control and unknown tokens: not text
  bool is_end_of_generation(int32_t id) const;  // EOS, end of turn and their like
  std::optional<int32_t> find(std::string_view token_text) const;  // the token of this exact name

  // How many bytes of `text` none of its tokens stands for because the vocabulary has none.
  size_t count_lost_bytes(std::string_view text, const std::vector<TokenSpan>& tokens) const;

  // False for a byte that the vocabulary has no token for: encoding leaves it out, as the model's
  // own tokenizer does. (SmolLM2 lacks 21 bytes, all of them controls or rare lead bytes.)
  bool has_byte(uint8_t byte) const;

  // -1 = none.
  int32_t bos() const;
  int32_t eos() const;
  int32_t unk() const;
  int32_t sep() const;
  int32_t pad() const;
  int32_t eot() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool adds_space_prefix() const;  // the decoded text then starts with a space to strip

  // "gpt2" or "llama", and the name of the pre-tokenizer's row ("" for "llama").
  std::string_view model() const;
  std::string_view pre() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The pre-tokenizer names that create() knows, in alphabetical order.
std::vector<std::string_view> known_pre_tokenizers();

}  // namespace fathom::text

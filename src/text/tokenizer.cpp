// SPDX-License-Identifier: Apache-2.0
// Joins the parts: special tokens are cut out of the text first, the encoder of the vocabulary's
// model takes what lies between them, and BOS and EOS are added as the file asks.
#include "text/tokenizer.hpp"

#include <algorithm>
#include <variant>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "text/bpe_encoder.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/special_matcher.hpp"
#include "text/spm_encoder.hpp"
#include "text/unicode.hpp"
#include "text/vocab_error.hpp"
#include "text/vocabulary.hpp"

namespace fathom::text {
namespace {

// Guessing a pre-tokenizer gives plausible and wrong ids, so a name is required.
const PreTokenizer& require_pre_tokenizer(const std::optional<std::string>& name) {
  if (name) {
    if (const PreTokenizer* row = find_pre_tokenizer(*name)) return *row;
  }
  fail_key(ErrorCode::unsupported, "tokenizer.ggml.pre",
           "found {}; known are {}: convert the model again with a current converter, or set the "
           "key to the pre-tokenizer that the model was trained with",
           name ? fmt::format("'{}'", printable(*name)) : "none",
           fmt::join(known_pre_tokenizers(), ", "));
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const VocabData& data)
      : vocabulary(data),
        user_defined(vocabulary, SpecialMatcher::Select::user_defined),
        all_special(vocabulary, SpecialMatcher::Select::all),
        bos(static_cast<int32_t>(data.bos)),
        eos(static_cast<int32_t>(data.eos)),
        unk(static_cast<int32_t>(data.unk)),
        sep(static_cast<int32_t>(data.sep)),
        pad(static_cast<int32_t>(data.pad)),
        eot(static_cast<int32_t>(data.eot)),
        strip_after_control(data.strip_after_control) {
    const bool is_spm = vocabulary.model == VocabModel::sentencepiece;
    bool add_bos_default = is_spm;
    if (is_spm) {
      encoder.emplace<SpmEncoder>(vocabulary, data.scores);
    } else {
      pre_tokenizer = &require_pre_tokenizer(data.pre);
      encoder.emplace<BpeEncoder>(vocabulary, data.merges, *pre_tokenizer);
      add_bos_default = pre_tokenizer->add_bos;
    }
    const auto require_id = [](std::optional<bool> add, int32_t id, const char* name) {
      if (!add.value_or(false) || id >= 0) return;
      fail_key(ErrorCode::bad_file, fmt::format("tokenizer.ggml.add_{}_token", name),
               "found true, but there is no tokenizer.ggml.{}_token_id", name);
    };
    require_id(data.add_bos, bos, "bos");
    require_id(data.add_eos, eos, "eos");
    adds_bos = data.add_bos.value_or(add_bos_default) && bos >= 0;
    adds_eos = data.add_eos.value_or(false);
    adds_space_prefix = is_spm && data.add_space_prefix.value_or(true);
  }

  void encode_plain(std::string_view text, size_t begin, size_t end, bool after_special,
                    std::vector<TokenSpan>& out) const {
    if (begin == end) return;
    if (const auto* bpe = std::get_if<BpeEncoder>(&encoder)) {
      bpe->encode(text, begin, end, out);
    } else {
      std::get<SpmEncoder>(encoder).encode(text, begin, end, adds_space_prefix && after_special,
                                           out);
    }
  }

  std::vector<TokenSpan> encode(std::string_view text, EncodeOptions options) const {
    if (text.size() > kMaxTextBytes) {
      fail(ErrorCode::usage, "a text of {} bytes is too long to encode; the limit is {}",
           text.size(), kMaxTextBytes);
    }
    std::vector<TokenSpan> out;
    out.reserve(text.size() / 3 + 8);
    if (options.add_special && adds_bos) out.push_back({bos, 0, 0});
    const SpecialMatcher& specials = options.parse_special ? all_special : user_defined;
    bool after_special = true;  // so is the start of the text
    for (size_t pos = 0; pos < text.size();) {
      const auto special = specials.empty() ? SpecialMatcher::Match{text.size(), text.size(), -1}
                                            : specials.find(text, pos);
      encode_plain(text, pos, special.begin, after_special, out);
      after_special = special.begin == pos ? after_special : false;
      if (special.id >= 0) {
        const bool doubles_bos = special.begin == 0 && special.id == bos && !out.empty();
        if (!doubles_bos) out.push_back({special.id, special.begin, special.end});
        after_special = true;
      }
      pos = special.end;
      if (strip_after_control && special.id >= 0 && vocabulary.is_control(special.id) &&
          special.id != bos) {
        pos = skip(text, pos, kSpace);
      }
    }
    const bool has_eos = options.parse_special && !out.empty() && out.back().id == eos &&
                         out.back().end > out.back().begin;
    if (options.add_special && adds_eos && !has_eos) {
      out.push_back({eos, text.size(), text.size()});
    }
    return out;
  }

  void check(int32_t id) const {
    if (id >= 0 && id < vocabulary.size()) return;
    fail(ErrorCode::usage, "token id {} is out of range; the vocabulary has {} tokens", id,
         vocabulary.size());
  }

  Vocabulary vocabulary;
  SpecialMatcher user_defined;
  SpecialMatcher all_special;
  std::variant<std::monostate, BpeEncoder, SpmEncoder> encoder;
  const PreTokenizer* pre_tokenizer = nullptr;  // null for SentencePiece
  int32_t bos, eos, unk, sep, pad, eot;
  bool strip_after_control;
  bool adds_bos = false;
  bool adds_eos = false;
  bool adds_space_prefix = false;
};

Tokenizer Tokenizer::create(const VocabData& vocab) {
  return Tokenizer(std::make_unique<Impl>(vocab));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const std::vector<TokenSpan> spans = impl_->encode(text, options);
  std::vector<int32_t> ids(spans.size());
  std::transform(spans.begin(), spans.end(), ids.begin(), [](const TokenSpan& s) { return s.id; });
  return ids;
}

std::vector<TokenSpan> Tokenizer::encode_with_offsets(std::string_view text,
                                                      EncodeOptions options) const {
  return impl_->encode(text, options);
}

std::string Tokenizer::decode_piece(int32_t id) const {
  std::string out;
  append_piece(id, out);
  return out;
}

void Tokenizer::append_piece(int32_t id, std::string& out) const {
  impl_->check(id);
  impl_->vocabulary.append_bytes(id, out);
}

int32_t Tokenizer::n_vocab() const { return impl_->vocabulary.size(); }

TokenType Tokenizer::type(int32_t id) const {
  impl_->check(id);
  return impl_->vocabulary.type(id);
}

bool Tokenizer::is_control(int32_t id) const {
  impl_->check(id);
  return impl_->vocabulary.is_control(id);
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  const auto& ids = impl_->vocabulary.end_of_generation;
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::optional<int32_t> Tokenizer::find(std::string_view token_text) const {
  const int32_t id = impl_->vocabulary.table().find(token_text);
  return id < 0 ? std::nullopt : std::optional(id);
}

size_t Tokenizer::count_lost_bytes(std::string_view text,
                                   const std::vector<TokenSpan>& tokens) const {
  size_t lost = 0, at = 0;
  const auto skip_to = [&](size_t end) {
    for (; at < end; ++at) lost += !has_byte(static_cast<uint8_t>(text[at]));
  };
  for (const TokenSpan& token : tokens) {
    if (token.begin == token.end) continue;  // added
    skip_to(token.begin);
    at = token.end;
  }
  skip_to(text.size());
  return lost;
}

bool Tokenizer::has_byte(uint8_t byte) const { return impl_->vocabulary.byte_ids[byte] >= 0; }

int32_t Tokenizer::bos() const { return impl_->bos; }
int32_t Tokenizer::eos() const { return impl_->eos; }
int32_t Tokenizer::unk() const { return impl_->unk; }
int32_t Tokenizer::sep() const { return impl_->sep; }
int32_t Tokenizer::pad() const { return impl_->pad; }
int32_t Tokenizer::eot() const { return impl_->eot; }
bool Tokenizer::adds_bos() const { return impl_->adds_bos; }
bool Tokenizer::adds_eos() const { return impl_->adds_eos; }
bool Tokenizer::adds_space_prefix() const { return impl_->adds_space_prefix; }

std::string_view Tokenizer::model() const { return impl_->pre_tokenizer ? "gpt2" : "llama"; }
std::string_view Tokenizer::pre() const {
  return impl_->pre_tokenizer ? impl_->pre_tokenizer->names[0] : "";
}

}  // namespace fathom::text

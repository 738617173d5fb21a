// SPDX-License-Identifier: Apache-2.0
// Any bytes as a vocabulary and a text: the tokenizer refuses with a clean error, or it encodes
// the text so that offsets and round trip hold.
//
// An input is records: a kind byte, a length byte, that many bytes.
#include <bitset>
#include <cstring>
#include <stdexcept>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "fuzz_target.hpp"
#include "tests/support/text_vocab.hpp"
#include "text/detokenizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/stop_matcher.hpp"

namespace {

using namespace fathom;
using namespace fathom::text;

enum Kind : uint8_t { kText, kToken, kMerge, kScore, kType, kSpecial, kFlags, kPre, kStop, kKinds };

struct Input {
  VocabData vocab;
  std::string text;
  std::vector<std::string> stops;
  bool parse_special = false;
};

void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

void read_record(Kind kind, std::string_view bytes, Input& input) {
  VocabData& vocab = input.vocab;
  const uint8_t first = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
  switch (kind) {
    case kText:
      input.text += bytes;
      break;
    case kToken:  // the first byte is its type
      vocab.tokens.push_back(bytes.substr(bytes.empty() ? 0 : 1));
      vocab.types.push_back(first % 8);
      vocab.scores.push_back(0);
      break;
    case kMerge:
      vocab.merges.push_back(bytes);
      break;
    case kScore:
      if (bytes.size() >= 4 && !vocab.scores.empty()) {
        std::memcpy(&vocab.scores.back(), bytes.data(), 4);
      }
      break;
    case kType:
      vocab.types.push_back(first);
      break;
    case kSpecial:
      vocab.bos = first;
      vocab.eos = bytes.size() > 1 ? bytes[1] : -1;
      vocab.unk = bytes.size() > 2 ? bytes[2] : -1;
      break;
    case kFlags: {
      const std::bitset<8> bits(first);
      vocab.add_bos = bits[0];
      vocab.add_eos = bits[1];
      vocab.add_space_prefix = bits[2];
      vocab.strip_after_control = bits[3];
      vocab.model = bits[4] ? "llama" : "gpt2";
      input.parse_special = bits[5];
      break;
    }
    case kPre: {
      const auto names = known_pre_tokenizers();
      vocab.pre = first < names.size() ? std::string(names[first]) : std::string(bytes);
      break;
    }
    case kStop:
      if (!bytes.empty()) input.stops.emplace_back(bytes);
      break;
    case kKinds:
      break;
  }
}

void check_text(const Tokenizer& tokenizer, const Input& input) {
  const EncodeOptions options{.add_special = true, .parse_special = input.parse_special};
  const auto spans = tokenizer.encode_with_offsets(input.text, options);
  std::string joined;
  size_t pos = 0;
  bool is_plain = !tokenizer.adds_space_prefix();
  StopMatcher stops(input.stops);
  Detokenizer detokenizer(tokenizer);
  std::string shown;
  for (const TokenSpan& span : spans) {
    expect(span.begin >= pos && span.end >= span.begin && span.end <= input.text.size(),
           "offsets are out of order");
    pos = span.end;
    if (span.end > span.begin) tokenizer.append_piece(span.id, joined);
    const bool is_added = span.end == span.begin;
    is_plain = is_plain && (is_added || !tokenizer.is_control(span.id));
    // A special token may cut a character of the text in two.
    is_plain = is_plain && (tokenizer.type(span.id) == text::TokenType::normal ||
                            is_valid_utf8(tokenizer.decode_piece(span.id)));
    expect(input.parse_special || is_added || tokenizer.type(span.id) != TokenType::control,
           "text became a control token");
    stops.push(detokenizer.push(span.id), shown);
  }
  stops.push(detokenizer.flush(), shown);
  stops.flush(shown);
  for (const std::string& stop : input.stops) {
    expect(shown.find(stop) == std::string::npos, "a stop string got out");
  }
  is_plain = is_plain && is_valid_utf8(input.text);  // else it comes back repaired
  for (const char byte : input.text) {
    is_plain = is_plain && tokenizer.has_byte(static_cast<uint8_t>(byte));
  }
  if (is_plain && tokenizer.model() == "gpt2" && !input.vocab.strip_after_control) {
    expect(joined == input.text, "the text does not come back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  auto builder = test::VocabBuilder::byte_level();  // without its bytes hardly any text encodes
  Input input;
  input.vocab = builder.data;
  while (rest.size() >= 2) {
    const auto kind = static_cast<Kind>(static_cast<uint8_t>(rest[0]) % kKinds);
    const size_t length = std::min<size_t>(static_cast<uint8_t>(rest[1]), rest.size() - 2);
    read_record(kind, rest.substr(2, length), input);
    rest.remove_prefix(2 + length);
  }
  try {
    const Tokenizer tokenizer = Tokenizer::create(input.vocab);
    check_text(tokenizer, input);
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::bad_file || error.code() == ErrorCode::unsupported,
           "a vocabulary was refused with another code than bad_file or unsupported");
    expect(std::string_view(error.what()).find('\n') == std::string_view::npos,
           "a message has several lines");
  }
  return 0;
}

std::vector<std::string> fathom::fuzz::seeds() {
  const auto record = [](Kind kind, const std::string& bytes) {
    return std::string{static_cast<char>(kind), static_cast<char>(bytes.size())} + bytes;
  };
  const std::string merges = record(kMerge, "a b") +
                             record(kToken,
                                    "\x01"
                                    "ab") +
                             record(kMerge, "ab ab") +
                             record(kToken,
                                    "\x01"
                                    "abab");
  const std::string specials = record(kToken, "\x03<s>") + record(kToken, "\x03</s>") +
                               record(kToken, "\x04<|user|>") + record(kToken, "\x02<unk>");
  const std::string texts = record(kText, "abab ab's 123 <s></s> <|user|>\n\n  x") +
                            record(kText, "\xF0\x9F\xA6\x99 \xE4\xB8\xAD\xFF\x80");
  const std::string stops = record(kStop, "ab's") + record(kStop, "\n\n");
  const std::string spm = record(kToken, "\x06<0xE4>") + record(kToken, "\x01\xE2\x96\x81") +
                          record(kToken,
                                 "\x01\xE2\x96\x81"
                                 "a") +
                          record(kScore, "\x3F\x80\x00\x3F") +
                          record(kToken,
                                 "\x01"
                                 "ab1") +
                          record(kScore, "\x00\x00\x80\x7F");
  std::vector<std::string> out;
  for (char pre = 0; pre < static_cast<char>(text::known_pre_tokenizers().size()); ++pre) {
    out.push_back(merges + record(kPre, std::string(1, pre)) + texts);
  }
  for (const char flags : {0x00, 0x20, 0x03, 0x14, 0x10, 0x34, 0x3F}) {
    out.push_back(merges + specials + record(kSpecial, "\x10\x11\x12") +
                  record(kFlags, std::string(1, flags)) + stops + texts);
    out.push_back(spm + specials + record(kFlags, std::string(1, flags)) + texts);
  }
  out.push_back(record(kType, "\x01") + texts);
  out.push_back(record(kPre, "\xFFnone") + texts);
  return out;
}

// SPDX-License-Identifier: Apache-2.0
// The hostile GGUF corpus, generated: a good file and what can be done to it, each case with what
// a reader must say. Kinds of damage after the known bugs of GGUF readers (docs/gguf.md).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/support/gguf_bytes.hpp"

namespace fathom::test {

struct GgufCase {
  std::string name;
  std::string image;
  std::optional<ErrorCode> refusal;  // nothing: the file must open
  std::vector<std::string> parts;    // of the message
};

// One of everything: each kind of value, plain and quantised tensors, a gap by alignment.
inline GgufBytes good_gguf() {
  using gguf::ValueType;
  GgufBytes b;
  b.counts(3, 9);
  b.key("general.architecture", ValueType::string);
  b.text("llama");
  b.u32_key("llama.block_count", 2);
  b.key("general.seed", ValueType::u64);
  b.put_u64("u64 value", 77);
  b.key("llama.rope.freq_base", ValueType::f32);
  b.put(10000.0f);
  b.key("flag", ValueType::boolean);
  b.put(uint8_t{1});
  b.key("tokenizer.ggml.tokens", ValueType::array);
  b.array(ValueType::string, 3);
  for (const char* token : {"a", "bc", "\xe2\x82\xac"}) b.text(token);
  b.key("tokenizer.ggml.token_type", ValueType::array);
  b.array(ValueType::i32, 3);
  for (const int32_t type : {-1, 0, 1}) b.put(type);
  b.key("flags", ValueType::array);
  b.array(ValueType::boolean, 2);
  for (const uint8_t flag : {1, 0}) b.put(flag);
  b.u32_key("general.alignment", 64);
  b.tensor("token_embd.weight", {8, 4}, DType::f32, 0);
  b.tensor("blk.0.attn_q.weight", {32, 2}, DType::q4_0, 128);
  b.tensor("output_norm.weight", {4}, DType::f16, 192);
  b.data(200, 64);
  return b;
}

namespace corpus_detail {

constexpr auto kBad = ErrorCode::bad_file;
constexpr auto kUnsupported = ErrorCode::unsupported;

inline void add_truncations(std::vector<GgufCase>& out) {
  const GgufBytes good = good_gguf();
  const std::string image = good.finish();
  for (size_t n = 0; n < image.size(); ++n) {
    std::vector<std::string> parts = {"at offset "};
    if (n >= good.header_bytes()) parts.push_back("outside the data section");
    out.push_back({fmt::format("first {} bytes", n), image.substr(0, n), kBad, parts});
  }
}

inline void add_extremes(std::vector<GgufCase>& out) {
  constexpr uint64_t kExtremes[] = {0, 1, 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX};
  const GgufBytes good = good_gguf();
  for (const GgufBytes::Field& field : good.fields()) {
    for (const uint64_t value : kExtremes) {
      std::string image = good.finish();
      if (std::memcmp(image.data() + field.offset, &value, sizeof(value)) == 0) continue;
      std::memcpy(image.data() + field.offset, &value, sizeof(value));
      // A smaller tensor, fewer tensors and another number are still a right file.
      const bool harmless = field.what == "u64 value" ||
                            (field.what == "dimension" && value == 1) ||
                            (field.what == "tensor count" && value <= 1);
      std::string name = fmt::format("{} at {} = {}", field.what, field.offset, value);
      out.push_back(
          {std::move(name), std::move(image), harmless ? std::nullopt : std::optional(kBad), {}});
      if (!harmless) out.back().parts = {"at offset "};
    }
  }
}

inline std::string one_tensor(std::vector<uint64_t> dims, uint32_t type, uint64_t offset,
                              uint64_t data_bytes, std::string_view name = "w") {
  GgufBytes b;
  b.counts(1, 0);
  b.tensor(name, std::move(dims), static_cast<DType>(type), offset);
  b.data(data_bytes);
  return b.finish();
}

struct Placed {
  const char* name;
  uint64_t n_floats, offset;
};
inline std::string placed_tensors(std::vector<Placed> tensors, uint64_t data_bytes) {
  GgufBytes b;
  b.counts(tensors.size(), 0);
  for (const Placed& t : tensors) b.tensor(t.name, {t.n_floats}, DType::f32, t.offset);
  b.data(data_bytes);
  return b.finish();
}

inline void add_shapes(std::vector<GgufCase>& out) {
  constexpr uint32_t kF32 = 0, kQ4_0 = 2, kQ8_0 = 8;
  const std::string w = "tensor 'w' at offset ";
  const auto bad = [&](std::string name, std::string image, std::string part) {
    out.push_back({std::move(name), std::move(image), kBad, {w, std::move(part)}});
  };
  constexpr uint64_t k2e32 = 1ull << 32;
  const std::string too_many = "more than 9223372036854775807 elements";
  bad("product wraps to 0", one_tensor({k2e32, k2e32}, kF32, 0, 64), too_many);
  bad("product wraps to 0, Q8_0", one_tensor({k2e32, k2e32}, kQ8_0, 0, 64), too_many);
  bad("product wraps to 1", one_tensor({0x100000001, 0xffffffff00000001}, kF32, 0, 64), too_many);
  bad("padded size wraps to 0", one_tensor({(1ull << 62) - 1}, kF32, 0, 64),
      "18446744073709551612 bytes end outside");
  bad("bytes wrap", one_tensor({1ull << 62}, kF32, 0, 64), "exceed 18446744073709551615 bytes");
  bad("dimension 2^63", one_tensor({1ull << 63}, kF32, 0, 64), too_many);
  bad("dimension -1", one_tensor({UINT64_MAX}, kF32, 0, 64), too_many);
  const uint64_t large = 4ull * INT32_MAX;
  bad("four large dimensions", one_tensor({large, large, large, large}, kF32, 0, 64), too_many);
  bad("no data", one_tensor({1024, 1024}, kF32, 0, 0), "4194304 bytes end outside");
  bad("one byte short", one_tensor({16}, kF32, 0, 63), "the data section of 63 bytes");
  bad("zero dimension", one_tensor({4, 0}, kF32, 0, 64), "dimension 1 is 0");
  bad("zero rows of blocks", one_tensor({0}, kQ4_0, 0, 64), "dimension 0 is 0");
  bad("no dimensions", one_tensor({}, kF32, 0, 64), "0 dimensions, expected 1..4");
  bad("five dimensions", one_tensor({1, 1, 1, 1, 1}, kF32, 0, 64), "5 dimensions, expected 1..4");
  bad("a part of a block", one_tensor({33}, kQ4_0, 0, 64), "needs a multiple of 32");
  bad("misaligned", one_tensor({4}, kF32, 4, 64), "a multiple of 32");
  bad("offset -1", one_tensor({4}, kF32, UINT64_MAX, 64), "a multiple of 32");
  bad("offset past the end", one_tensor({4}, kF32, 96, 64), "outside the data section of 64 bytes");
  bad("offset plus size wraps", one_tensor({16}, kF32, UINT64_MAX - 31, 64), "outside");
  {
    GgufBytes b;  // dimension count 2^32 - 1
    b.counts(1, 0);
    b.text("w");
    b.put(UINT32_MAX);
    b.data(64);
    bad("very many dimensions", b.finish(), "4294967295 dimensions");
  }
  {
    GgufBytes b;
    b.counts(2, 1);
    b.u32_key("general.alignment", 64);
    b.tensor("v", {8}, DType::f32, 0);
    b.tensor("w", {8}, DType::f32, 32);
    b.data(96, 64);
    bad("laid out for another alignment", b.finish(), "a multiple of 64");
  }

  const std::string overlaps = "it overlaps tensor 'v'";
  bad("same place", placed_tensors({{"v", 8, 0}, {"w", 8, 0}}, 64), "it overlaps");
  bad("overlap", placed_tensors({{"v", 16, 0}, {"w", 8, 32}}, 64), overlaps);
  bad("overlap, later first", placed_tensors({{"w", 8, 32}, {"v", 16, 0}}, 64), overlaps);
  bad("contained", placed_tensors({{"v", 64, 0}, {"w", 1, 128}}, 256), overlaps);
  bad("contained by one that ends later",
      placed_tensors({{"v", 64, 0}, {"u", 1, 224}, {"w", 1, 32}}, 256), overlaps);

  const auto good = [&](std::string name, std::string image) {
    out.push_back({std::move(name), std::move(image), std::nullopt, {}});
  };
  good("neighbours", placed_tensors({{"v", 8, 0}, {"w", 8, 32}}, 64));
  good("in another order, with a gap", placed_tensors({{"v", 8, 96}, {"w", 9, 0}}, 128));
  good("no padding at the end", placed_tensors({{"v", 1, 0}}, 4));
}

inline void add_types(std::vector<GgufCase>& out) {
  const auto refused = [&](uint32_t id, std::string part) {
    out.push_back({fmt::format("type id {}", id),
                   one_tensor({256}, id, 0, 1024),
                   kUnsupported,
                   {"tensor 'w' at offset ", std::to_string(id), std::move(part), "Q4_K"}});
  };
  for (const uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) refused(id, "removed");
  for (const uint32_t id : {43u, 1u << 31, UINT32_MAX}) refused(id, "unknown");
  for (const uint32_t id : {9u, 15u, 16u, 17u, 18u, 19u, 21u, 22u, 24u, 25u, 26u, 27u, 28u, 29u,
                            34u, 35u, 40u, 41u, 42u}) {
    refused(id, std::string(lookup_dtype(id).name) + " ");
  }
}

inline void add_names(std::vector<GgufCase>& out) {
  constexpr uint32_t kF32 = 0;
  const auto one_key = [](std::string_view key) {
    GgufBytes b;
    b.counts(0, 1);
    b.u32_key(key, 1);
    return b.finish();
  };
  const std::pair<const char*, const char*> not_utf8[] = {
      {"a\x80z", "a\\x80z"},          // continuation without a lead
      {"a\xff", "a\\xff"},            // no byte of UTF-8
      {"\xc0\xaf", "\\xc0\\xaf"},     // overlong
      {"\xe0\x9f\xbf", "\\xe0"},      // overlong
      {"\xed\xa0\x80", "\\xed"},      // surrogate
      {"\xf4\x90\x80\x80", "\\xf4"},  // above U+10FFFF
      {"ab\xe2\x82", "ab\\xe2\\x82"}  // cut short
  };
  for (const auto& [bytes, shown] : not_utf8) {
    out.push_back({fmt::format("key {}", shown),
                   one_key(bytes),
                   kBad,
                   {"key 1 of 1 at offset 24", shown, "UTF-8"}});
    out.push_back({fmt::format("tensor name {}", shown),
                   one_tensor({4}, kF32, 0, 64, bytes),
                   kBad,
                   {"tensor 1 of 1 at offset 24", shown, "UTF-8"}});
  }
  out.push_back({"empty key", one_key(""), kBad, {"key 1 of 1 at offset 24", "empty"}});
  out.push_back({"empty name",
                 one_tensor({4}, kF32, 0, 64, ""),
                 kBad,
                 {"tensor 1 of 1 at offset 24", "empty"}});
  out.push_back({"long key", one_key(std::string(65536, 'k')), kBad, {"65536", "at most 65535"}});
  out.push_back({"longest key", one_key(std::string(65535, 'k')), std::nullopt, {}});
  out.push_back({"long name",
                 one_tensor({4}, kF32, 0, 64, std::string(65, 'n')),
                 kBad,
                 {"65 bytes", "at most 64"}});
  out.push_back(
      {"longest name", one_tensor({4}, kF32, 0, 64, std::string(64, 'n')), std::nullopt, {}});
  out.push_back({"a name of several lines",
                 one_tensor({0}, kF32, 0, 64, "a\nb\x1b[2J"),
                 kBad,
                 {"'a\\x0ab\\x1b[2J'"}});

  GgufBytes keys;
  keys.counts(0, 3);
  for (const char* key : {"one", "two", "one"}) keys.u32_key(key, 1);
  out.push_back({"key twice", keys.finish(), kBad, {"key 'one' at offset ", "second time"}});
  out.push_back({"tensor twice",
                 placed_tensors({{"a", 8, 0}, {"b", 8, 32}, {"a", 8, 64}}, 96),
                 kBad,
                 {"tensor 'a' at offset ", "second time"}});
}

inline void add_values(std::vector<GgufCase>& out) {
  using gguf::ValueType;
  // The header of a file with the one key "k"; the value follows at offset 37.
  const auto value = [](uint32_t type, auto put) {
    GgufBytes b;
    b.counts(0, 1);
    b.key("k", static_cast<ValueType>(type));
    put(b);
    return b.finish();
  };
  const auto bad = [&](std::string name, std::string image, std::vector<std::string> parts) {
    parts.insert(parts.begin(), "key 'k' at offset ");
    out.push_back({std::move(name), std::move(image), kBad, std::move(parts)});
  };
  for (const uint32_t type : {13u, 255u, 1u << 31}) {
    bad(fmt::format("value type {}", type), value(type, [](GgufBytes& b) { b.put(uint64_t{0}); }),
        {fmt::format("the value type is {}, expected 0..12", type)});
    bad(fmt::format("element type {}", type),
        value(9,
              [&](GgufBytes& b) {
                b.array(static_cast<ValueType>(type), 1);
                b.put(uint64_t{0});
              }),
        {fmt::format("the element type is {}, expected 0..12", type)});
  }
  bad("array of arrays",
      value(9,
            [](GgufBytes& b) {
              b.array(ValueType::array, 1);
              b.array(ValueType::u8, 1);
              b.put(uint8_t{0});
            }),
      {"arrays of arrays"});
  for (const ValueType element :
       {ValueType::u8, ValueType::f32, ValueType::f64, ValueType::string}) {
    for (const uint64_t count : {1ull << 63, ~0ull, (1ull << 61) + 1, 1ull << 32, 17ull}) {
      bad(fmt::format("array of {} of type {}", count, static_cast<int>(element)),
          value(9,
                [&](GgufBytes& b) {
                  b.array(element, count);
                  b.put(uint64_t{0});
                  b.put(uint64_t{0});
                }),
          {fmt::format("{} elements", count), "the 16 bytes left hold at most"});
    }
  }
  bad("string of an array too long",
      value(9,
            [](GgufBytes& b) {
              b.array(ValueType::string, 2);
              b.text("ab");
              b.put(uint64_t{100});
            }),
      {"needs 100 bytes, 0 are left"});
  for (const uint64_t length : {1ull << 62, 1ull << 63, ~0ull, 9ull}) {
    bad(fmt::format("string of {} bytes", length),
        value(8,
              [&](GgufBytes& b) {
                b.put(length);
                b.put(uint64_t{0});
              }),
        {std::to_string(length)});
  }
  bad("bool 2", value(7, [](GgufBytes& b) { b.put(uint8_t{2}); }), {"37", "a bool holds 2"});
  bad("array with bool 255",
      value(9,
            [](GgufBytes& b) {
              b.array(ValueType::boolean, 3);
              for (const uint8_t flag : {0, 1, 255}) b.put(flag);
            }),
      {"51", "a bool holds 255"});
}

inline void add_alignments(std::vector<GgufCase>& out) {
  using gguf::ValueType;
  const auto aligned = [](ValueType type, auto value, uint64_t pad) {
    GgufBytes b;
    b.counts(1, 1);
    b.key("general.alignment", type);
    b.put(value);
    b.tensor("w", {4}, DType::f32, 0);
    b.data(64, pad);
    return b.finish();
  };
  for (const uint32_t n : {0u, 1u, 2u, 4u, 13u, 33u, 1u << 17, 1u << 30, 1u << 31}) {
    out.push_back({fmt::format("alignment {}", n),
                   aligned(ValueType::u32, n, 32),
                   kBad,
                   {"key 'general.alignment' at offset ", fmt::format("u32 {}", n), "8..65536"}});
  }
  out.push_back({"alignment u64",
                 aligned(ValueType::u64, uint64_t{32}, 32),
                 kBad,
                 {"u64 32", "expected a u32"}});
  out.push_back({"alignment i32",
                 aligned(ValueType::i32, int32_t{32}, 32),
                 kBad,
                 {"i32 32", "expected a u32"}});
  for (const uint32_t n : {8u, 16u, 128u, 65536u}) {
    out.push_back(
        {fmt::format("alignment {}", n), aligned(ValueType::u32, n, n), std::nullopt, {}});
  }
}

inline void add_headers(std::vector<GgufCase>& out) {
  const auto header = [](uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    GgufBytes b(version);
    b.counts(n_tensors, n_keys);
    return b.finish();
  };
  std::string magic = header(3, 0, 0);
  magic[0] = 'X';
  out.push_back({"magic", magic, kBad, {"'XGUF'", "expected 'GGUF'"}});
  out.push_back({"an older format", "ggjt" + magic.substr(4), kBad, {"'ggjt'"}});
  out.push_back({"only the magic", "GGUF", kBad, {"header at offset 4", "needs 4 bytes"}});
  for (const uint32_t version : {0u, 1u, 4u, 1000u, UINT32_MAX}) {
    out.push_back({fmt::format("version {}", version),
                   header(version, 0, 0),
                   kUnsupported,
                   {"header at offset 4", fmt::format("version {}", version), "2 and 3"}});
  }
  for (const uint32_t version : {0x02000000u, 0x03000000u}) {
    out.push_back({fmt::format("version {:#x}", version),
                   header(version, 0, 0),
                   kUnsupported,
                   {"header at offset 4", "big-endian"}});
  }
  out.push_back({"-1 tensors", header(3, UINT64_MAX, 0), kBad, {"header at offset 8", "1048576"}});
  out.push_back({"-1 keys", header(3, 0, UINT64_MAX), kBad, {"header at offset 16", "65536"}});
  out.push_back({"2^20 + 1 tensors", header(3, (1 << 20) + 1, 0), kBad, {"at most 1048576"}});
  out.push_back({"2^16 + 1 keys", header(3, 0, (1 << 16) + 1), kBad, {"at most 65536"}});
  out.push_back({"more tensors than bytes", header(3, 1000, 0), kBad, {"header at offset 8"}});
  out.push_back({"more keys than bytes", header(3, 0, 1000), kBad, {"header at offset 16"}});
  out.push_back({"a header alone", header(3, 0, 0), std::nullopt, {}});
  out.push_back({"a header alone, version 2", header(2, 0, 0), std::nullopt, {}});
}

// Files that are right and hold as many records as their bytes allow: they bound the memory that
// a byte of a file can cost.
inline void add_dense(std::vector<GgufCase>& out) {
  constexpr uint64_t kKeys = 1 << 16, kTensors = 20'000;
  GgufBytes keys;
  keys.counts(0, kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) {
    keys.key(fmt::format("{:x}", i), gguf::ValueType::u8);
    keys.put(uint8_t{0});
  }
  out.push_back({"65536 keys", keys.finish(), std::nullopt, {}});
  GgufBytes tensors;
  tensors.counts(kTensors, 1);
  tensors.u32_key("general.alignment", 8);
  for (uint64_t i = 0; i < kTensors; ++i) {
    tensors.tensor(fmt::format("{:x}", i), {1}, DType::f16, i * 8);
  }
  tensors.data(kTensors * 8, 8);
  out.push_back({"20000 tensors", tensors.finish(), std::nullopt, {}});
}

}  // namespace corpus_detail

inline std::vector<GgufCase> gguf_corpus() {
  using namespace corpus_detail;
  std::vector<GgufCase> out = {{"good", good_gguf().finish(), std::nullopt, {}}};
  for (auto add : {add_truncations, add_extremes, add_shapes, add_types, add_names, add_values,
                   add_alignments, add_headers, add_dense}) {
    add(out);
  }
  return out;
}

}  // namespace fathom::test

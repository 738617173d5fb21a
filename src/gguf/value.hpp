// SPDX-License-Identifier: Apache-2.0
// One metadata value of a GGUF file: a type and a view of its bytes. Nothing is copied until it
// is asked for. Source: the GGUF specification, version 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::gguf {

enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr uint32_t kValueTypeCount = 13;

struct ValueTypeInfo {
  const char* name;     // "u32", "string"
  uint32_t width;       // bytes of a number or bool; 0 for string and array
  uint64_t min_stored;  // the least a value of this type occupies in a file
};
// REQUIRES: type is one of the enumerators.
const ValueTypeInfo& value_type_info(ValueType type);

struct Value {
  ValueType type;
  ValueType element;                   // of an array; otherwise equal to type
  uint64_t count;                      // elements of an array; otherwise 1
  std::span<const std::byte> payload;  // as stored; a string without its length
  uint64_t offset;                     // of the payload in its file

  bool is_array() const { return type == ValueType::array; }

  // Nothing when the value has another type or does not fit.
  std::optional<uint64_t> as_u64() const;  // any integer type
  std::optional<int64_t> as_i64() const;   // any integer type
  std::optional<double> as_f64() const;    // f32 and f64
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  // One element of an array of numbers or bools. REQUIRES: index < count, element is no string.
  Value at(uint64_t index) const;
  // The strings of an array of strings, as views of the file; nothing for other types.
  std::optional<std::vector<std::string_view>> strings() const;
  // An array of any integer type, when every element fits Int.
  template <class Int>
  std::optional<std::vector<Int>> integers() const;
  std::optional<std::vector<float>> floats() const;  // an array of f32

  // "u32", "i32 -1", "array of 3 f32": what a message says was found.
  std::string describe() const;
};

struct Entry {
  std::string_view key;
  Value value;
};

template <class Int>
std::optional<std::vector<Int>> Value::integers() const {
  if (!is_array() || element == ValueType::string) return std::nullopt;
  std::vector<Int> out(count);
  for (uint64_t i = 0; i < count; ++i) {
    // An unsigned element above the range of i64 is the one case that as_i64 cannot carry.
    const Value value = at(i);
    if (const auto number = value.as_i64(); number && std::in_range<Int>(*number)) {
      out[i] = static_cast<Int>(*number);
    } else if (const auto large = value.as_u64(); large && std::in_range<Int>(*large)) {
      out[i] = static_cast<Int>(*large);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace fathom::gguf

// SPDX-License-Identifier: Apache-2.0
// The table of value types, and the conversions out of the bytes of a value.
#include "gguf/value.hpp"

#include <array>
#include <cstring>

#include "base/byte_reader.hpp"
#include "base/error.hpp"

namespace fathom::gguf {
namespace {

constexpr std::array<ValueTypeInfo, kValueTypeCount> kTypes = {{
    {"u8", 1, 1},
    {"i8", 1, 1},
    {"u16", 2, 2},
    {"i16", 2, 2},
    {"u32", 4, 4},
    {"i32", 4, 4},
    {"f32", 4, 4},
    {"bool", 1, 1},
    {"string", 0, 8},  // its length
    {"array", 0, 12},  // element type and count
    {"u64", 8, 8},
    {"i64", 8, 8},
    {"f64", 8, 8},
}};

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// Calls use(x) with the integer that `value` holds; false when it holds no integer.
template <class Use>
bool visit_integer(const Value& value, Use&& use) {
  switch (value.type) {
    case ValueType::u8:
      return use(load<uint8_t>(value.payload)), true;
    case ValueType::i8:
      return use(load<int8_t>(value.payload)), true;
    case ValueType::u16:
      return use(load<uint16_t>(value.payload)), true;
    case ValueType::i16:
      return use(load<int16_t>(value.payload)), true;
    case ValueType::u32:
      return use(load<uint32_t>(value.payload)), true;
    case ValueType::i32:
      return use(load<int32_t>(value.payload)), true;
    case ValueType::u64:
      return use(load<uint64_t>(value.payload)), true;
    case ValueType::i64:
      return use(load<int64_t>(value.payload)), true;
    default:
      return false;
  }
}

template <class Int>
std::optional<Int> integer_as(const Value& value) {
  std::optional<Int> out;
  visit_integer(value, [&](auto number) {
    if (std::in_range<Int>(number)) out = static_cast<Int>(number);
  });
  return out;
}

}  // namespace

const ValueTypeInfo& value_type_info(ValueType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<uint64_t> Value::as_u64() const { return integer_as<uint64_t>(*this); }
std::optional<int64_t> Value::as_i64() const { return integer_as<int64_t>(*this); }

std::optional<double> Value::as_f64() const {
  if (type == ValueType::f32) return load<float>(payload);
  if (type == ValueType::f64) return load<double>(payload);
  return std::nullopt;
}

std::optional<bool> Value::as_bool() const {
  if (type != ValueType::boolean) return std::nullopt;
  return payload[0] != std::byte{0};
}

std::optional<std::string_view> Value::as_string() const {
  if (type != ValueType::string) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size());
}

Value Value::at(uint64_t index) const {
  const uint64_t width = value_type_info(element).width;
  FATHOM_DCHECK(is_array() && width != 0 && index < count, "an element outside its array");
  return {element, element, 1, payload.subspan(index * width, width), offset + index * width};
}

std::optional<std::vector<std::string_view>> Value::strings() const {
  if (!is_array() || element != ValueType::string) return std::nullopt;
  std::vector<std::string_view> out(count);
  ByteReader reader(payload);
  for (std::string_view& text : out) {
    uint64_t length = 0;
    std::span<const std::byte> bytes;
    FATHOM_CHECK(reader.read(length) && reader.take(length, bytes), "strings checked when opened");
    text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  return out;
}

std::optional<std::vector<float>> Value::floats() const {
  if (!is_array() || element != ValueType::f32) return std::nullopt;
  std::vector<float> out(count);
  if (count != 0) std::memcpy(out.data(), payload.data(), payload.size());
  return out;
}

std::string Value::describe() const {
  if (is_array()) return fmt::format("array of {} {}", count, value_type_info(element).name);
  std::string text = value_type_info(type).name;
  if (const auto number = as_i64()) return fmt::format("{} {}", text, *number);
  if (const auto number = as_u64()) return fmt::format("{} {}", text, *number);
  if (const auto number = as_f64()) return fmt::format("{} {}", text, *number);
  if (const auto flag = as_bool()) return fmt::format("{} {}", text, *flag);
  return text;
}

}  // namespace fathom::gguf

// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF version 3 file as a stream: declare metadata and tensors, begin(), give each
// tensor's bytes in the declared order in chunks of any size, finish(). The file appears under its
// name only in finish(), whole; until then it is <path>.<process id>.partial.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "gguf/gguf_file.hpp"
#include "gguf/value.hpp"
#include "tensor/dtype.hpp"

namespace fathom::gguf {

// The ValueType that stores a T.
template <class T>
constexpr ValueType value_type_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return ValueType::u8;
  if constexpr (std::is_same_v<T, int8_t>) return ValueType::i8;
  if constexpr (std::is_same_v<T, uint16_t>) return ValueType::u16;
  if constexpr (std::is_same_v<T, int16_t>) return ValueType::i16;
  if constexpr (std::is_same_v<T, uint32_t>) return ValueType::u32;
  if constexpr (std::is_same_v<T, int32_t>) return ValueType::i32;
  if constexpr (std::is_same_v<T, float>) return ValueType::f32;
  if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
  if constexpr (std::is_same_v<T, uint64_t>) return ValueType::u64;
  if constexpr (std::is_same_v<T, int64_t>) return ValueType::i64;
  if constexpr (std::is_same_v<T, double>) return ValueType::f64;
  if constexpr (std::is_convertible_v<T, std::string_view>) return ValueType::string;
}

class Writer {
 public:
  // Another alignment than the default is written as general.alignment.
  explicit Writer(uint32_t alignment = kDefaultAlignment);
  ~Writer();  // removes the partial file of a run that did not finish
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Metadata, in file order. REQUIRES: before begin(), a new key of valid UTF-8.
  void add_u8(std::string_view key, uint8_t value) { add_number(key, value); }
  void add_i8(std::string_view key, int8_t value) { add_number(key, value); }
  void add_u16(std::string_view key, uint16_t value) { add_number(key, value); }
  void add_i16(std::string_view key, int16_t value) { add_number(key, value); }
  void add_u32(std::string_view key, uint32_t value) { add_number(key, value); }
  void add_i32(std::string_view key, int32_t value) { add_number(key, value); }
  void add_u64(std::string_view key, uint64_t value) { add_number(key, value); }
  void add_i64(std::string_view key, int64_t value) { add_number(key, value); }
  void add_f32(std::string_view key, float value) { add_number(key, value); }
  void add_f64(std::string_view key, double value) { add_number(key, value); }
  void add_bool(std::string_view key, bool value) { add_number(key, value); }
  void add_string(std::string_view key, std::string_view value);
  // A range of numbers, bools or anything that converts to std::string_view.
  template <class Range>
  void add_array(std::string_view key, const Range& values);
  // A value as another file holds it.
  void add_value(std::string_view key, const Value& value);

  // Tensors, in the order in which their data will come; dims innermost first.
  // REQUIRES: before begin(), a new name of at most 63 bytes (llama.cpp's limit), 1..4 dimensions,
  // rows of whole blocks.
  void add_tensor(std::string_view name, DType type, std::span<const uint64_t> dims);

  // Bytes of the finished file. REQUIRES: all is declared.
  uint64_t file_bytes() const;

  // Creates the partial file, reserves its space and writes the header. Refuses a path where
  // something other than a regular file stands.
  void begin(const std::string& path);
  // The next bytes of the current tensor; a chunk does not cross into the next tensor. Padding is
  // the writer's business.
  void write(std::span<const std::byte> bytes);
  // REQUIRES: every tensor is complete. Gives the file its name, replacing an older one.
  void finish();

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<uint64_t> dims;
    uint64_t bytes;
    uint64_t offset;  // in the data section
  };

  template <class T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    metadata_.append(bytes, sizeof(T));
  }
  void put_string(std::string_view text);
  void put_key(std::string_view key, ValueType type);
  template <class T>
  void add_number(std::string_view key, T value) {
    put_key(key, value_type_of<T>());
    put(value);
  }

  std::string header() const;
  void append(std::span<const std::byte> bytes);
  void append_zeros(uint64_t n);
  void flush();
  void write_through(std::span<const std::byte> bytes);
  void start_tensor(size_t index);
  void discard();

  const uint32_t alignment_;
  std::string metadata_;  // encoded
  uint64_t n_keys_ = 0;
  std::unordered_set<std::string> names_;  // of keys ("k:") and tensors ("t:")
  std::vector<Tensor> tensors_;

  std::string path_;
  std::string partial_path_;
  int fd_ = -1;
  std::unique_ptr<std::byte[]> buffer_;
  size_t buffered_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  size_t tensor_ = 0;  // the one whose data comes next
  uint64_t tensor_bytes_left_ = 0;
};

template <class Range>
void Writer::add_array(std::string_view key, const Range& values) {
  using T = std::ranges::range_value_t<Range>;
  constexpr ValueType kElement = value_type_of<T>();
  put_key(key, ValueType::array);
  put(static_cast<uint32_t>(kElement));
  put(static_cast<uint64_t>(std::size(values)));
  for (auto&& value : values) {
    if constexpr (kElement == ValueType::string) {
      put_string(value);
    } else {
      put(static_cast<T>(value));
    }
  }
}

}  // namespace fathom::gguf

// SPDX-License-Identifier: Apache-2.0
// Makes GGUF images byte by byte, right or wrong, and remembers where each u64 of the header lies,
// so that hostile files can be derived from a good one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/value.hpp"
#include "tensor/dtype.hpp"

namespace fathom::test {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

class GgufBytes {
 public:
  // A u64 of the header: what it is and where.
  struct Field {
    std::string what;
    size_t offset;
  };

  explicit GgufBytes(uint32_t version = 3) {
    image_ = "GGUF";
    put(version);
  }

  void counts(uint64_t n_tensors, uint64_t n_keys) {
    put_u64("tensor count", n_tensors);
    put_u64("key count", n_keys);
  }
  // A key and its value type; the value is put next.
  void key(std::string_view name, gguf::ValueType type) {
    text(name, "key length");
    put(static_cast<uint32_t>(type));
  }
  void text(std::string_view text, const char* what = "string length") {
    put_u64(what, text.size());
    image_ += text;
  }
  void array(gguf::ValueType element, uint64_t count) {
    put(static_cast<uint32_t>(element));
    put_u64("array length", count);
  }
  void u32_key(std::string_view name, uint32_t value) {
    key(name, gguf::ValueType::u32);
    put(value);
  }
  void tensor(std::string_view name, std::vector<uint64_t> dims, DType type, uint64_t offset) {
    text(name, "name length");
    put(static_cast<uint32_t>(dims.size()));
    const bool blocks = lookup_dtype(static_cast<uint32_t>(type)).block_elems > 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      put_u64(d == 0 && blocks ? "row of blocks" : "dimension", dims[d]);
    }
    put(static_cast<uint32_t>(type));
    put_u64("tensor offset", offset);
  }
  template <class T>
  void put(T value) {
    image_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put_u64(std::string what, uint64_t value) {
    fields_.push_back({std::move(what), image_.size()});
    put(value);
  }
  // Ends the header and appends n bytes of data.
  void data(uint64_t n, uint64_t alignment = 32) {
    header_bytes_ = image_.size();
    image_.resize((image_.size() + alignment - 1) / alignment * alignment, '\0');
    image_.append(n, '\x5a');
  }

  std::string finish() const { return image_; }
  size_t header_bytes() const { return header_bytes_ ? header_bytes_ : image_.size(); }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::string image_;
  size_t header_bytes_ = 0;
  std::vector<Field> fields_;
};

}  // namespace fathom::test

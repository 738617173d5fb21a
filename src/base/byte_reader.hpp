// SPDX-License-Identifier: Apache-2.0
// A cursor over bytes that nobody vouches for. Every read asks first whether enough is left and
// says so; numbers are little-endian and need no alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace fathom {

static_assert(std::endian::native == std::endian::little,
              "files are read by copying bytes, which needs a little-endian machine");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }

  template <class T>
  [[nodiscard]] bool read(T& out) {
    static_assert(std::is_arithmetic_v<T>);
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }

  // The next n bytes, without a copy.
  [[nodiscard]] bool take(uint64_t n, std::span<const std::byte>& out) {
    if (left() < n) return false;
    out = bytes_.subspan(offset_, n);
    offset_ += n;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace fathom

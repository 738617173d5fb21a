// SPDX-License-Identifier: Apache-2.0
// Token text to id: open addressing over string views, no copies. A probe that runs long means
// that the file was built to collide; it is refused instead of searched for hours.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace fathom::text {

// Folds 8 bytes at a time with a 64x64->128 multiply.
inline uint64_t hash_bytes(std::string_view bytes) {
  const auto mix = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr uint64_t kA = 0x9E3779B97F4A7C15, kB = 0xD1B54A32D192ED03;
  uint64_t hash = bytes.size() ^ kA;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word, kB);
    bytes.remove_prefix(8);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    tail |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return mix(hash ^ tail, kA ^ kB);
}

// Slots for n entries: a power of two, between a quarter and two thirds full.
inline size_t table_capacity(size_t n) { return std::bit_ceil(n + n / 2 + 8); }

class StringTable {
 public:
  static constexpr int kMaxProbes = 1024;
  enum class Insert { done, duplicate, too_many_collisions };

  // `strings` must outlive the table.
  explicit StringTable(const std::vector<std::string_view>& strings)
      : strings_(&strings), slots_(table_capacity(strings.size())), mask_(slots_.size() - 1) {}

  Insert insert(int32_t id) {
    const std::string_view key = (*strings_)[id];
    const uint64_t hash = hash_bytes(key);
    size_t at = hash & mask_;
    for (int n = 0; n < kMaxProbes; ++n, at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.id < 0) {
        slot = {hash, id};
        return Insert::done;
      }
      if (slot.hash == hash) {
        return (*strings_)[slot.id] == key ? Insert::duplicate : Insert::too_many_collisions;
      }
    }
    return Insert::too_many_collisions;
  }

  // -1 when there is no such string.
  int32_t find(std::string_view key) const {
    const int32_t id = find_hash(hash_bytes(key));
    return id >= 0 && (*strings_)[id] == key ? id : -1;
  }
  // The string with this hash, without a look at its bytes. All strings of the table have different
  // hashes; one that is not in it may, by a chance of 2^-46 or malice, be taken for one that is.
  int32_t find_hash(uint64_t hash) const {
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.id < 0 || slot.hash == hash) return slot.id;
    }
  }
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

 private:
  struct Slot {
    uint64_t hash = 0;
    int32_t id = -1;  // -1: empty
  };

  const std::vector<std::string_view>* strings_;
  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace fathom::text

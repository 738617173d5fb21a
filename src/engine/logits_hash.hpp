// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash over the bits of rows of logits: two runs that agree in it computed the same
// numbers. Eight lanes of xor, rotate, multiply, so that it costs less than reading the logits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

namespace fathom::engine {

inline uint64_t logits_hash(std::span<const float> logits, uint64_t seed = 0) {
  constexpr uint64_t kPrime = 0x9E3779B185EBCA87u;
  constexpr int kLanes = 8;
  uint64_t lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = seed + kPrime * (lane + 1);
  const auto mix = [](uint64_t state, uint64_t word) {
    return std::rotl(state ^ word, 29) * kPrime;
  };
  const char* bytes = reinterpret_cast<const char*>(logits.data());
  size_t left = logits.size_bytes();
  for (; left >= sizeof lanes; left -= sizeof lanes, bytes += sizeof lanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      uint64_t word;
      std::memcpy(&word, bytes + lane * sizeof word, sizeof word);
      lanes[lane] = mix(lanes[lane], word);
    }
  }
  uint64_t hash = mix(seed, logits.size());
  for (; left > 0; left -= sizeof(float), bytes += sizeof(float)) {
    uint32_t word;
    std::memcpy(&word, bytes, sizeof word);
    hash = mix(hash, word);
  }
  for (const uint64_t lane : lanes) hash = mix(hash, lane ^ lane >> 32);
  return hash ^ hash >> 29;
}

}  // namespace fathom::engine

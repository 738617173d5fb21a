// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon et al., SC 2011: 128 random bits are a pure
// function of a 64-bit key and a 128-bit counter, the same on host and device.
#pragma once

#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

struct PhiloxBlock {
  uint32_t x[4];
};

FATHOM_HD inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter.x[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter.x[2];
    const uint32_t high0 = static_cast<uint32_t>(product0 >> 32);
    const uint32_t high1 = static_cast<uint32_t>(product1 >> 32);
    counter = {{high1 ^ counter.x[1] ^ key0, static_cast<uint32_t>(product1),
                high0 ^ counter.x[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the draw of (seed, position).
FATHOM_HD inline double philox_uniform(uint64_t seed, uint64_t position) {
  const PhiloxBlock block = philox4x32_10(
      {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0u, 0u}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (uint64_t{block.x[0]} << 32 | block.x[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace fathom

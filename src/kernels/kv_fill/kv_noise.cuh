// SPDX-License-Identifier: Apache-2.0
// The noise of kv_fill, for host and device: four bytes of Philox4x32-10 summed to one value.
#pragma once

#include <cstdint>

#include "tensor/hd.hpp"
#include "tensor/philox.hpp"

namespace fathom {

// Four neighbouring dims' z: mean 0, deviation 1, within +-3.5. A pure function of its arguments,
// the same on host and device.
struct KvNoise {
  float z[4];
};
FATHOM_HD inline KvNoise kv_noise(uint64_t seed, int layer, int part, int kv_head, int64_t token,
                                  int dim) {
  constexpr float kInverseSigma = 1.0f / 147.80054f;  // of four bytes: sqrt(4 * (256^2 - 1) / 12)
  const PhiloxBlock bits =
      philox4x32_10({{static_cast<uint32_t>(dim / 4), static_cast<uint32_t>(token),
                      static_cast<uint32_t>(2 * kv_head + part), static_cast<uint32_t>(layer)}},
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  KvNoise out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t x = bits.x[i];
    const int sum = static_cast<int>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
    out.z[i] = static_cast<float>(sum - 510) * kInverseSigma;
  }
  return out;
}

}  // namespace fathom

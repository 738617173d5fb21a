// SPDX-License-Identifier: Apache-2.0
// Seeded makers of weights and activations for tests and benchmarks of the products.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/dtype.hpp"
#include "tensor/half.hpp"

namespace fathom::quant {

// Byte offsets of the f16 scales of a block; -1 where there is none.
struct ScaleOffsets {
  int first, second;
};
inline ScaleOffsets scale_offsets(DType type) {
  switch (type) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108, -1};
    case DType::q6_k:
      return {208, -1};
    default:
      return {0, -1};
  }
}

// Random codes under scales of both signs around 0.01; float types get values around 1.
inline std::vector<std::byte> random_weights(DType type, int64_t rows, int64_t cols,
                                             uint64_t seed) {
  const DTypeInfo& info = dtype_info(type);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  std::vector<std::byte> out(static_cast<size_t>(rows * row_bytes(type, cols)));
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  auto put16 = [&](size_t at, uint16_t bits) {
    out[at] = static_cast<std::byte>(bits);
    out[at + 1] = static_cast<std::byte>(bits >> 8);
  };
  for (size_t block = 0; block < out.size(); block += info.block_bytes) {
    switch (type) {
      case DType::f32: {
        const uint32_t bits = std::bit_cast<uint32_t>(value(random));
        for (int i = 0; i < 4; ++i) out[block + i] = static_cast<std::byte>(bits >> (8 * i));
        break;
      }
      case DType::f16:
        put16(block, f32_to_f16(value(random)));
        break;
      case DType::bf16:
        put16(block, f32_to_bf16(value(random)));
        break;
      case DType::mxfp4:
        out[block] = static_cast<std::byte>(118 + random() % 8);
        break;
      default: {
        const ScaleOffsets at = scale_offsets(type);
        put16(block + at.first, f32_to_f16(0.01f * value(random)));
        if (at.second >= 0) put16(block + at.second, f32_to_f16(0.01f * value(random)));
      }
    }
  }
  return out;
}

// Values with a heavy tail, as activations have.
inline std::vector<float> random_activations(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) {
    const float v = normal(random);
    x = v * v * v;
  }
  return out;
}

}  // namespace fathom::quant

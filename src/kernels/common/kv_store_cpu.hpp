// SPDX-License-Identifier: Apache-2.0
// One token's key or value of one KV head, written into its tile on the CPU.
#pragma once

#include <cstring>

#include "base/error.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/kv_quant_cpu.hpp"
#include "tensor/half.hpp"
#include "tensor/kv_view.hpp"

namespace fathom {

// Writes `count` elements of kBytes each, `stride` elements apart.
template <class T>
void scatter(const T* from, int count, std::byte* to, int stride) {
  for (int i = 0; i < count; ++i) std::memcpy(to + i * stride * sizeof(T), from + i, sizeof(T));
}

// Stores one head of K (stride 16: dims are tile rows) or V (stride 1) at its token of a tile.
inline void store_head(const CpuKernels& cpu, const KvGeometry& geometry, const float* x, int token,
                       bool is_key, std::byte* tile) {
  constexpr int kMaxHeadDim = 1024;
  const int n = geometry.head_dim;
  FATHOM_CHECK(n <= kMaxHeadDim, "head_dim above 1024");
  const int stride = is_key ? kKvTileTokens : 1;
  const int first = is_key ? token : token * n;
  switch (geometry.format) {
    case KvFormat::f32:
      scatter(x, n, tile + 4 * first, stride);
      break;
    case KvFormat::f16: {
      uint16_t half[kMaxHeadDim];
      cpu.elementwise.to_f16(x, n, half);
      scatter(half, n, tile + 2 * first, stride);
      break;
    }
    case KvFormat::bf16: {
      uint16_t half[kMaxHeadDim];
      for (int i = 0; i < n; ++i) half[i] = f32_to_bf16(x[i]);
      scatter(half, n, tile + 2 * first, stride);
      break;
    }
    case KvFormat::q8_0: {
      std::byte* scales = tile + n * kKvTileTokens;
      for (int block = 0; block < n / 32; ++block) {
        int8_t codes[32];
        uint16_t scale;
        quantize_kv(x + 32 * block, codes, scale);
        scatter(codes, 32, tile + first + 32 * block * stride, stride);
        std::memcpy(scales + 2 * (block * kKvTileTokens + token), &scale, 2);
      }
      break;
    }
    case KvFormat::fp8_e4m3: {
      uint8_t codes[kMaxHeadDim];
      float scale;
      quantize_kv_e4m3(x, n, codes, scale);
      scatter(codes, n, tile + first, stride);
      std::memcpy(tile + n * kKvTileTokens + 4 * token, &scale, 4);
      break;
    }
  }
}

}  // namespace fathom

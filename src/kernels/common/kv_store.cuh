// SPDX-License-Identifier: Apache-2.0
// One token's key or value of one KV head, written into its tile (tensor/kv_view.hpp) by a warp:
// lane l holds dims l, l + 32, ...
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/cxx20.cuh"
#include "tensor/e4m3.hpp"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

// One value; `at` counts values from the tile's first. REQUIRES: a format without scales.
__device__ __forceinline__ void store_kv_value(KvFormat format, float x, int at, std::byte* tile) {
  if (format == KvFormat::f16) {
    reinterpret_cast<__half*>(tile)[at] = __float2half_rn(x);
  } else if (format == KvFormat::bf16) {
    reinterpret_cast<__nv_bfloat16*>(tile)[at] = __float2bfloat16_rn(x);
  } else {
    reinterpret_cast<float*>(tile)[at] = x;
  }
}

__device__ __forceinline__ void warp_store_kv_e4m3(int head_dim, const float* values, int token,
                                                   bool is_key, std::byte* tile) {
  const int lane = threadIdx.x % 32;
  uint32_t largest = 0;  // as bits: NaN is above all
  for (int dim = lane; dim < head_dim; dim += 32)
    largest = max(largest, __float_as_uint(values[dim]) & 0x7fffffffu);
  const float scale = e4m3_scale(__uint_as_float(__reduce_max_sync(0xffffffffu, largest)));
  for (int dim = lane; dim < head_dim; dim += 32) {
    const int at = is_key ? dim * kKvTileTokens + token : token * head_dim + dim;
    tile[at] = static_cast<std::byte>(e4m3_code(values[dim], scale));
  }
  if (lane == 0) reinterpret_cast<float*>(tile + head_dim * kKvTileTokens)[token] = scale;
}

// `values` is read at the lane's dims only. REQUIRES: all lanes of the warp take part.
__device__ inline void warp_store_kv(const KvGeometry& geometry, const float* values, int token,
                                     bool is_key, std::byte* tile) {
  const int lane = threadIdx.x % 32, n = geometry.head_dim;
  if (geometry.format == KvFormat::fp8_e4m3)
    return warp_store_kv_e4m3(n, values, token, is_key, tile);
  const int stride = is_key ? kKvTileTokens : 1;
  const int first = is_key ? token : token * n;
  for (int base = 0; base < n; base += 32) {
    const int dim = base + lane;
    const bool inside = dim < n;
    const float x = inside ? values[dim] : 0.0f;
    const int at = first + dim * stride;
    switch (geometry.format) {
      case KvFormat::f32:
      case KvFormat::f16:
      case KvFormat::bf16:
        if (inside) store_kv_value(geometry.format, x, at, tile);
        break;
      case KvFormat::q8_0: {  // a block is one dim of every lane
        const uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu;
        const float largest = __uint_as_float(__reduce_max_sync(0xffffffffu, magnitude));
        const __half scale = __float2half_rn(__fdiv_rn(largest, 127.0f));
        const float d = __half2float(scale);
        const bool finite = largest <= 3.402823466e38f && d <= 65504.0f;
        const float inverse = d > 0.0f ? __fdiv_rn(1.0f, d) : 0.0f;
        const float code = fminf(fmaxf(rintf(__fmul_rn(x, inverse)), -127.0f), 127.0f);
        tile[at] = static_cast<std::byte>(finite ? static_cast<int>(code) : 0);
        if (lane == 0) {
          auto* scales = reinterpret_cast<__half*>(tile + n * kKvTileTokens);
          scales[base / 32 * kKvTileTokens + token] = finite ? scale : __ushort_as_half(0x7e00);
        }
        break;
      }
      case KvFormat::fp8_e4m3:  // has returned
        break;
    }
  }
}

}  // namespace fathom::cuda

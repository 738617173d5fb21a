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

// As bits, in the order of magnitudes; NaN is above all.
__device__ __forceinline__ uint32_t kv_magnitude(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

// A block of q8_0 by its largest magnitude.
struct KvBlockQ8 {
  __half scale;
  float inverse;
  bool finite;

  __device__ __forceinline__ explicit KvBlockQ8(uint32_t magnitude) {
    const float largest = __uint_as_float(magnitude);
    scale = __float2half_rn(__fdiv_rn(largest, 127.0f));
    const float d = __half2float(scale);
    finite = largest <= 3.402823466e38f && d <= 65504.0f;
    inverse = d > 0.0f ? __fdiv_rn(1.0f, d) : 0.0f;
  }
  __device__ __forceinline__ std::byte code(float x) const {
    const float code = fminf(fmaxf(rintf(__fmul_rn(x, inverse)), -127.0f), 127.0f);
    return static_cast<std::byte>(finite ? static_cast<int>(code) : 0);
  }
  // dim: one of the block's.
  __device__ __forceinline__ void store_scale(int head_dim, int dim, int token,
                                              std::byte* tile) const {
    auto* scales = reinterpret_cast<__half*>(tile + head_dim * kKvTileTokens);
    scales[dim / 32 * kKvTileTokens + token] = finite ? scale : __ushort_as_half(0x7e00);
  }
};

__device__ __forceinline__ void warp_store_kv_e4m3(int head_dim, const float* values, int token,
                                                   bool is_key, std::byte* tile) {
  const int lane = threadIdx.x % 32;
  uint32_t largest = 0;
  for (int dim = lane; dim < head_dim; dim += 32) largest = max(largest, kv_magnitude(values[dim]));
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
        const KvBlockQ8 block(__reduce_max_sync(0xffffffffu, kv_magnitude(x)));
        tile[at] = block.code(x);
        if (lane == 0) block.store_scale(n, dim, token, tile);
        break;
      }
      case KvFormat::fp8_e4m3:  // has returned
        break;
    }
  }
}

}  // namespace fathom::cuda

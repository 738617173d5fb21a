// SPDX-License-Identifier: Apache-2.0
// A block of threads fills a run of tokens of one head of K or V, tile by tile (16 tokens): noise
// into shared memory, the scales of codes, then the elements in the order in which they lie. Mean
// and deviation of the head are computed by every block of its own, from at most 256 tokens, which
// is less than what it writes: the op needs no scratch. All in the order of kv_spread and with its
// roundings, so that the bytes are those of the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "kernels/common/dynamic_shared.cuh"
#include "kernels/kv_fill/kv_noise.cuh"
#include "tensor/e4m3.hpp"
#include "tensor/half.hpp"
#include "tensor/kv_view.hpp"

namespace fathom::cuda {

inline constexpr int kKvFillThreads = 256;
inline constexpr int kKvFillMaxHeadDim = 512;
inline constexpr int64_t kKvFillRunTokens = 1024;  // of a block; whole tiles

struct KvFillParams {
  KvLayerView kv;
  const int32_t* pages;
  int64_t begin, end;  // tokens
  int64_t n_source;    // tokens that the spread is of, at most 256
  uint64_t seed;
  int layer;
};

// Where a token's elements lie in its tile.
struct KvPlace {
  std::byte* tile;
  int lane, dim_stride, token_stride;

  __device__ int element(int dim) const { return dim * dim_stride + lane * token_stride; }
};

// part 0 is K, 1 is V.
__device__ __forceinline__ KvPlace kv_place(const KvFillParams& p, int part, int kv_head,
                                            int64_t token) {
  std::byte* tile = (part == 0 ? p.kv.k : p.kv.v) + p.kv.tile_offset(p.pages, kv_head, token);
  const int lane = static_cast<int>(token % kKvTileTokens);
  if (part == 0) return {tile, lane, kKvTileTokens, 1};
  return {tile, lane, 1, p.kv.geometry.head_dim};
}

__device__ __forceinline__ const uint16_t* kv_scales(const KvFillParams& p, const std::byte* tile) {
  return reinterpret_cast<const uint16_t*>(tile + kKvTileTokens * p.kv.geometry.head_dim);
}

__device__ __forceinline__ double kv_load(const KvFillParams& p, const KvPlace& place, int dim) {
  const int at = place.element(dim);
  switch (p.kv.geometry.format) {
    case KvFormat::f32:
      return reinterpret_cast<const float*>(place.tile)[at];
    case KvFormat::f16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(place.tile)[at]);
    case KvFormat::bf16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(place.tile)[at]);
    case KvFormat::q8_0:
      return __dmul_rn(reinterpret_cast<const int8_t*>(place.tile)[at],
                       f16_to_f32(kv_scales(p, place.tile)[dim / 32 * kKvTileTokens + place.lane]));
    case KvFormat::fp8_e4m3:
      return __dmul_rn(e4m3_to_f32(reinterpret_cast<const uint8_t*>(place.tile)[at]),
                       reinterpret_cast<const float*>(kv_scales(p, place.tile))[place.lane]);
  }
  return 0;
}

// kv_spread of kv_fill.cpp: one dim a thread, sums over the tokens in order.
__device__ __forceinline__ void kv_source_spread(const KvFillParams& p, int part, int kv_head,
                                                 double* mean, double* sigma) {
  const int head_dim = p.kv.geometry.head_dim;
  const double n = static_cast<double>(p.n_source);
  bool zero = true;
  for (int dim = static_cast<int>(threadIdx.x); dim < head_dim; dim += kKvFillThreads) {
    double m = 0, s = 0;
    for (int64_t token = 0; token < p.n_source; ++token) {
      const double x = kv_load(p, kv_place(p, part, kv_head, token), dim);
      m = __dadd_rn(m, __ddiv_rn(x, n));
    }
    for (int64_t token = 0; token < p.n_source; ++token) {
      const double x = kv_load(p, kv_place(p, part, kv_head, token), dim);
      const double off = __dsub_rn(x, m);
      s = __dadd_rn(s, __ddiv_rn(__dmul_rn(off, off), n));
    }
    s = __dsqrt_rn(s);
    mean[dim] = m;
    sigma[dim] = s;
    zero = zero && s == 0.0 && m == 0.0;
  }
  if (__syncthreads_and(zero)) {
    for (int dim = static_cast<int>(threadIdx.x); dim < head_dim; dim += kKvFillThreads) {
      sigma[dim] = 1.0;
    }
  }
  __syncthreads();
}

// Values of the tile that begins at `first`, [16][head_dim + 1]: the last column keeps threads that
// walk along tokens out of each other's banks.
__device__ __forceinline__ void kv_tile_values(const KvFillParams& p, int part, int kv_head,
                                               int64_t first, const double* mean,
                                               const double* sigma, float* x) {
  const int head_dim = p.kv.geometry.head_dim, quads = (head_dim + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kKvTileTokens * quads; i += kKvFillThreads) {
    const int lane = i / quads, dim = i % quads * 4;
    const KvNoise noise = kv_noise(p.seed, p.layer, part, kv_head, first + lane, dim);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (dim + j >= head_dim) break;
      x[lane * (head_dim + 1) + dim + j] = static_cast<float>(
          __dadd_rn(mean[dim + j], __dmul_rn(sigma[dim + j], static_cast<double>(noise.z[j]))));
    }
  }
}

// The f16 scale of 32 values, as quantize_kv; 0x7e00 where they cannot be stored.
__device__ __forceinline__ uint16_t kv_scale(const float* x) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    largest = fmaxf(largest, fabsf(x[i]));
    finite = finite && isfinite(x[i]);
  }
  const uint16_t scale = f32_to_f16(largest / 127.0f);
  return finite && isfinite(f16_to_f32(scale)) ? scale : 0x7e00;
}
__device__ __forceinline__ int8_t kv_code(float x, uint16_t scale) {
  const float d = f16_to_f32(scale);
  if (!(d > 0.0f)) return 0;  // NaN too
  return static_cast<int8_t>(fminf(fmaxf(rintf(__fmul_rn(x, 1.0f / d)), -127.0f), 127.0f));
}

// The f32 scales of a tile's 16 tokens: as many threads each take the largest of a token's values.
__device__ __forceinline__ void kv_token_scales(const float* x, int head_dim, float* scales) {
  constexpr int kThreads = kKvFillThreads / kKvTileTokens;
  static_assert(kThreads <= 32 && 32 % kThreads == 0, "they are of one warp");
  const int lane = static_cast<int>(threadIdx.x) / kThreads;
  uint32_t largest = 0;  // as bits: NaN is above all
  for (int dim = static_cast<int>(threadIdx.x) % kThreads; dim < head_dim; dim += kThreads)
    largest = max(largest, __float_as_uint(x[lane * (head_dim + 1) + dim]) & 0x7fffffffu);
  for (int distance = kThreads / 2; distance > 0; distance /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  if (threadIdx.x % kThreads == 0) scales[lane] = e4m3_scale(__uint_as_float(largest));
}

// One block: a run of tokens (blockIdx.x) of K or V (blockIdx.z) of a head (blockIdx.y).
__global__ void __launch_bounds__(kKvFillThreads) kv_fill_kernel(KvFillParams p) {
  __shared__ uint16_t scales[kKvFillMaxHeadDim / 32][kKvTileTokens];
  __shared__ float token_scales[kKvTileTokens];
  const KvGeometry& geometry = p.kv.geometry;
  const int head_dim = geometry.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.z);
  auto* mean = dynamic_shared<double>();  // then sigma, and the values of a tile
  double* sigma = mean + head_dim;
  float* x = reinterpret_cast<float*>(sigma + head_dim);
  pdl_wait();
  kv_source_spread(p, part, kv_head, mean, sigma);

  const int64_t aligned = p.begin / kKvTileTokens * kKvTileTokens;
  const int64_t run = aligned + int64_t{blockIdx.x} * kKvFillRunTokens;
  const int64_t run_end = run + kKvFillRunTokens < p.end ? run + kKvFillRunTokens : p.end;
  for (int64_t first = run; first < run_end; first += kKvTileTokens) {
    kv_tile_values(p, part, kv_head, first, mean, sigma, x);
    __syncthreads();
    std::byte* tile = kv_place(p, part, kv_head, first).tile;
    const auto wanted = [&](int lane) { return first + lane >= p.begin && first + lane < p.end; };
    if (geometry.format == KvFormat::q8_0) {
      uint16_t* stored = const_cast<uint16_t*>(kv_scales(p, tile));
      for (int i = static_cast<int>(threadIdx.x); i < head_dim / 32 * kKvTileTokens;
           i += kKvFillThreads) {
        const int block = i / kKvTileTokens, lane = i % kKvTileTokens;
        const uint16_t scale = kv_scale(x + lane * (head_dim + 1) + 32 * block);
        scales[block][lane] = scale;
        if (wanted(lane)) stored[i] = scale;
      }
      __syncthreads();
    } else if (geometry.format == KvFormat::fp8_e4m3) {
      kv_token_scales(x, head_dim, token_scales);
      __syncthreads();
      const int lane = static_cast<int>(threadIdx.x);
      if (lane < kKvTileTokens && wanted(lane))
        reinterpret_cast<float*>(tile + kKvTileTokens * head_dim)[lane] = token_scales[lane];
    }
    for (int at = static_cast<int>(threadIdx.x); at < kKvTileTokens * head_dim;
         at += kKvFillThreads) {
      const int lane = part == 0 ? at % kKvTileTokens : at / head_dim;
      const int dim = part == 0 ? at / kKvTileTokens : at % head_dim;
      if (!wanted(lane)) continue;
      const float value = x[lane * (head_dim + 1) + dim];
      switch (geometry.format) {
        case KvFormat::f32:
          reinterpret_cast<float*>(tile)[at] = value;
          break;
        case KvFormat::f16:
          reinterpret_cast<uint16_t*>(tile)[at] = f32_to_f16(value);
          break;
        case KvFormat::bf16:
          reinterpret_cast<uint16_t*>(tile)[at] = f32_to_bf16(value);
          break;
        case KvFormat::q8_0:
          reinterpret_cast<int8_t*>(tile)[at] = kv_code(value, scales[dim / 32][lane]);
          break;
        case KvFormat::fp8_e4m3:
          reinterpret_cast<uint8_t*>(tile)[at] = e4m3_code(value, token_scales[lane]);
          break;
      }
    }
    __syncthreads();  // the next tile's values take this one's place
  }
}

}  // namespace fathom::cuda

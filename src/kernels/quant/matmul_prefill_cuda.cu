// SPDX-License-Identifier: Apache-2.0
// The activations of many rows as matmul_prefill_kernel.cuh reads them: normed, scaled by a power
// of two so that the largest of a row lies in [2^14, 2^15), rounded to f16 or to two bf16 parts. A
// row with a value that is not finite gets NaN as its scale.
#include <cuda_bf16.h>

#include "kernels/quant/matmul_prefill_launch_kernel.cuh"

namespace fathom::cuda {
namespace {

using namespace quant;

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kColumnsOfOne = 4 * kThreads;  // columns of a row that a float4 a thread holds

struct RowStatistics {
  float squares;
  uint32_t largest;  // bits of the largest magnitude; as integers, NaN stands above infinity
};

__device__ RowStatistics block_statistics(RowStatistics x) {
  __shared__ RowStatistics shared[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    x.squares += __shfl_xor_sync(0xffffffffu, x.squares, distance);
    x.largest = max(x.largest, __shfl_xor_sync(0xffffffffu, x.largest, distance));
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  RowStatistics total = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) {
    total.squares += shared[warp].squares;
    total.largest = max(total.largest, shared[warp].largest);
  }
  return total;
}

// The power of two that brings `largest` into [2^14, 2^15), as far as floats reach.
__device__ float scale_up(float largest) {
  if (!(largest > 0.0f)) return 1.0f;
  const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23) - 127, -100);
  return __int_as_float((127 + 14 - exponent) << 23);
}

template <class Real>
__device__ uint32_t pair_bits(float a, float b) {
  const Real low = static_cast<Real>(a), high = static_cast<Real>(b);
  return *reinterpret_cast<const uint16_t*>(&low) |
         static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(&high)) << 16;
}

// Four columns of a row, those of float4 i, as they stand in one form of the activations. Lanes
// with neighbouring i are neighbours and all take part.
template <class Real>
__device__ void store_in_order(std::byte* block_row, int row, int i, const float (&x)[4]) {
  const int piece = i % 16 / 2;
  *reinterpret_cast<Words2*>(block_row + (piece ^ row % 8) * 16 + i % 2 * 8) = {
      pair_bits<Real>(x[0], x[1]), pair_bits<Real>(x[2], x[3])};
}

// Columns 4q, 4q + 2 of 16 are places 2q, 2q + 1, the others 8 + 2q, 9 + 2q: a lane trades a word
// with its neighbour, so that each has four places in a row.
__device__ void store_for_codes(std::byte* block_row, int row, int i, const float (&x)[4]) {
  static_assert(prefill_column(0) == 0 && prefill_column(1) == 2 && prefill_column(8) == 1);
  const uint32_t even = pair_bits<__half>(x[0], x[2]), odd = pair_bits<__half>(x[1], x[3]);
  const bool second = i % 2;
  const uint32_t other = __shfl_xor_sync(0xffffffffu, second ? even : odd, 1);
  const int piece = i % 16 / 4 * 2 + second;
  *reinterpret_cast<Words2*>(block_row + (piece ^ row % 8) * 16 + i % 4 / 2 * 8) =
      second ? Words2{other, odd} : Words2{even, other};
}

__device__ void store(const MatmulParams& p, const PrefillActs& acts, int row, int i, float4 v) {
  const float x[4] = {v.x, v.y, v.z, v.w};
  const int64_t block = i / 16, stride = int64_t{acts.n_rows} * kActRowBytes;
  std::byte* at = p.acts + row * int64_t{kActRowBytes};
  if (p.any_codes) store_for_codes(at + acts.codes + block * stride, row, i, x);
  if (p.any_f16) store_in_order<__half>(at + acts.f16 + block * stride, row, i, x);
  if (p.any_bf16) {
    float lost[4];
    for (int k = 0; k < 4; ++k) {
      lost[k] = x[k] - static_cast<float>(static_cast<__nv_bfloat16>(x[k]));
    }
    std::byte* high = at + acts.bf16 + 2 * block * stride;
    store_in_order<__nv_bfloat16>(high, row, i, x);
    store_in_order<__nv_bfloat16>(high + stride, row, i, lost);
  }
}

// A block of threads for each row. kKeep: float4 of a thread that stay in registers from the
// statistics to the rounding.
template <int kKeep>
__global__ void __launch_bounds__(kThreads) matmul_prefill_acts_kernel(MatmulParams p) {
  pdl_wait();
  pdl_launch_dependents();
  const int row = static_cast<int>(blockIdx.x), n4 = p.cols / 4, padded4 = padded_cols(p) / 4;
  const auto* in =
      reinterpret_cast<const float4*>(p.in + int64_t{p.in_row ? p.in_row[row] : row} * p.cols);
  const auto* norm = reinterpret_cast<const float4*>(p.norm);
  RowStatistics s{};
  const auto weighted = [&](int i) {
    float4 v = i < n4 ? in[i] : float4{};
    s.squares = __fmaf_rn(v.x, v.x, s.squares);
    s.squares = __fmaf_rn(v.y, v.y, s.squares);
    s.squares = __fmaf_rn(v.z, v.z, s.squares);
    s.squares = __fmaf_rn(v.w, v.w, s.squares);
    if (norm && i < n4) {
      const float4 w = norm[i];
      v = {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
    }
    const float x[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < 4; ++k) s.largest = max(s.largest, __float_as_uint(x[k]) & 0x7fffffffu);
    return v;
  };
  float4 keep[kKeep];
#pragma unroll
  for (int k = 0; k < kKeep; ++k) keep[k] = weighted(threadIdx.x + k * kThreads);
#pragma unroll 4
  for (int i = threadIdx.x + kKeep * kThreads; i < n4; i += kThreads) weighted(i);
  s = block_statistics(s);
  const float scale = norm ? 1.0f / sqrtf(s.squares / static_cast<float>(p.cols) + p.eps) : 1.0f;
  const float largest = __uint_as_float(s.largest) * scale;
  const bool finite = s.largest < 0x7f800000u && largest <= 3.402823466e38f;
  const float up = scale_up(largest);
  if (threadIdx.x == 0) {
    reinterpret_cast<float*>(p.acts)[row] = finite ? 1.0f / up : __uint_as_float(0x7fc00000u);
  }
  const PrefillActs acts = prefill_acts(p, p.n_rows);
  const auto finish = [&](int i, float4 v) {
    if (i >= padded4) return;  // whole warps: 64 float4 end the last tile
    if (!finite) v = {};
    store(p, acts, row, i,
          {v.x * scale * up, v.y * scale * up, v.z * scale * up, v.w * scale * up});
  };
#pragma unroll
  for (int k = 0; k < kKeep; ++k) finish(threadIdx.x + k * kThreads, keep[k]);
#pragma unroll 4
  for (int i = threadIdx.x + kKeep * kThreads; i < padded4; i += kThreads) {
    finish(i, weighted(i));
  }
}

}  // namespace

void make_prefill_acts(const MatmulParams& p, void* stream) {
  // More in registers lose: a block of 512 threads is then alone on its multiprocessor (H200,
  // 18,944 columns: 22 us with 5, 26 with 10).
  const auto kernel =
      p.cols <= 2 * kColumnsOfOne ? matmul_prefill_acts_kernel<2> : matmul_prefill_acts_kernel<5>;
  launch(kernel, dim3(static_cast<unsigned>(p.n_rows)), dim3(kThreads), 0, stream, p);
}

}  // namespace fathom::cuda

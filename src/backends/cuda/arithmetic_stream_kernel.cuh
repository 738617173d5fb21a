// SPDX-License-Identifier: Apache-2.0
// Independent chains in registers, whose results are known exactly: a chain of multiply-adds ends
// at its fixed point, a chain of tensor-core products at a multiple of the first product. The
// operands come as arguments, so that nothing is known when the kernel is compiled.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cxx20.cuh"
#include "kernels/common/mma.cuh"

namespace fathom::cuda {

inline constexpr int kArithmeticThreads = 512;  // a block
inline constexpr int kArithmeticBlocks = 2;     // a multiprocessor
inline constexpr int kFmaChains = 16;           // a thread
inline constexpr int kMmaChains = 8;            // a warp

__device__ __forceinline__ void count_right(bool right, uint64_t* n_right) {
  const unsigned n = __popc(__ballot_sync(0xffffffffu, right));
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(n_right), n);
}

// x = x * half + b, from 0 to its fixed point 2 b when half is 0.5.
__global__ void __launch_bounds__(kArithmeticThreads, kArithmeticBlocks)
    fma_stream_kernel(int64_t passes, float half, float step, uint64_t* n_right) {
  float x[kFmaChains], b[kFmaChains];
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) {
    x[i] = 0;
    b[i] = 1 + step * static_cast<float>(threadIdx.x * kFmaChains + i);
  }
#pragma unroll 4
  for (int64_t pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (int i = 0; i < kFmaChains; ++i) x[i] = fmaf(x[i], half, b[i]);
  }
  bool right = true;
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) right = right && fabsf(x[i] - 2 * b[i]) < 1e-6f * b[i];
  count_right(right, n_right);
}

// Codes of each lane: other ones for other lanes, small, so that the sums stay exact.
__device__ __forceinline__ uint32_t lane_codes(int i, uint32_t mask) {
  return ((threadIdx.x % 32u + 1u) * 2654435761u + static_cast<uint32_t>(i) * 40503u) & mask;
}

struct Int8Products {
  using Sum = int;
  static constexpr int kOps = 2 * 16 * 8 * 32;
  static constexpr uint32_t kMask = 0x07070707u;  // codes 0 to 7
  static constexpr uint32_t kOffset = 0;
  static __device__ __forceinline__ void add(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    mma_k32<CodeSign::both>(d, a, b0, b1, d);
  }
};

struct F16Products {
  using Sum = float;
  static constexpr int kOps = 2 * 16 * 8 * 16;
  static constexpr uint32_t kMask = 0x02000200u;  // 1 or 1.5
  static constexpr uint32_t kOffset = 0x3c003c00u;
  static __device__ __forceinline__ void add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    mma_f16(d, a, b0, b1);
  }
};

template <class Products>
__global__ void __launch_bounds__(kArithmeticThreads, kArithmeticBlocks)
    mma_stream_kernel(int64_t passes, uint64_t* n_right) {
  using Sum = typename Products::Sum;
  uint32_t a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = lane_codes(i, Products::kMask) | Products::kOffset;
#pragma unroll
  for (int i = 0; i < 2; ++i) b[i] = lane_codes(i + 4, Products::kMask) | Products::kOffset;
  Sum first[4] = {};
  Products::add(first, a, b[0], b[1]);
  // Each chain begins elsewhere, or they would be one.
  Sum d[kMmaChains][4];
#pragma unroll
  for (int chain = 0; chain < kMmaChains; ++chain) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d[chain][i] = static_cast<Sum>(chain);
  }
#pragma unroll 4
  for (int64_t pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (int chain = 0; chain < kMmaChains; ++chain) Products::add(d[chain], a, b[0], b[1]);
  }
  bool right = true;
#pragma unroll
  for (int chain = 0; chain < kMmaChains; ++chain) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      right = right &&
              d[chain][i] == static_cast<Sum>(passes) * first[i] + static_cast<Sum>(chain) &&
              first[i] != 0;
    }
  }
  count_right(right, n_right);
}

}  // namespace fathom::cuda

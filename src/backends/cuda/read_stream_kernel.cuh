// SPDX-License-Identifier: Apache-2.0
// Each thread sums 16-byte vectors a grid apart, warps fold by shuffles, one atomic per warp. The
// sum is of integers, so its value does not depend on the order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

__device__ __forceinline__ void add_sum_of_warp(unsigned long long own, unsigned long long* sum) {
  for (int lane_distance = 16; lane_distance > 0; lane_distance /= 2) {
    own += __shfl_down_sync(0xffffffffu, own, lane_distance);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}

__global__ void read_stream_kernel(const ulonglong2* __restrict__ data, int64_t n_vectors,
                                   unsigned long long* __restrict__ sum) {
  constexpr int kUnroll = 4;  // independent loads in flight per thread
  const int64_t n_threads = int64_t{gridDim.x} * blockDim.x;
  int64_t vector = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned long long own = 0;
  for (; vector + (kUnroll - 1) * n_threads < n_vectors; vector += kUnroll * n_threads) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const ulonglong2 v = __ldcs(data + vector + i * n_threads);
      own += v.x + v.y;
    }
  }
  for (; vector < n_vectors; vector += n_threads) {
    const ulonglong2 v = __ldcs(data + vector);
    own += v.x + v.y;
  }
  add_sum_of_warp(own, sum);
}

// The same over and over, past the first-level cache: in each pass a block takes the place of
// another, so that what it reads was never its own.
__global__ void read_cached_kernel(const ulonglong2* __restrict__ data, int64_t n_vectors,
                                   int passes, unsigned long long* __restrict__ sum) {
  constexpr int kUnroll = 4;
  const int64_t n_threads = int64_t{gridDim.x} * blockDim.x;
  unsigned long long own = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const unsigned block = (blockIdx.x + static_cast<unsigned>(pass) * 37u) % gridDim.x;
    int64_t vector = int64_t{block} * blockDim.x + threadIdx.x;
    for (; vector + (kUnroll - 1) * n_threads < n_vectors; vector += kUnroll * n_threads) {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const ulonglong2 v = __ldcg(data + vector + i * n_threads);
        own += v.x + v.y;
      }
    }
    for (; vector < n_vectors; vector += n_threads) {
      const ulonglong2 v = __ldcg(data + vector);
      own += v.x + v.y;
    }
  }
  add_sum_of_warp(own, sum);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// One block. What lies in host memory is read in one go, 16 loads a thread in flight, since each
// takes a microsecond. The kernel lets no other start before it has ended: kernels further on read
// positions and slots before they wait for the kernel in front of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/arch.cuh"
#include "kernels/common/cxx20.cuh"
#include "tensor/step_ring.hpp"

namespace fathom::cuda {

inline constexpr int kBeginStepThreads = 512;

// As BeginStepArgs, in words.
struct BeginStepParams {
  const int32_t* inbox;  // of the host
  int64_t place_words, requests_at, n_request_words;
  int64_t n_ctx;
  int32_t n_rows;
  int64_t* n_steps;
  int32_t *rows, *requests;
  const int32_t* newest;
  int32_t* history;
};

// n words of host memory, past every cache.
__device__ __forceinline__ void read_host(const int32_t* from, int32_t* to, int64_t n) {
  constexpr int kInFlight = 16;
  int32_t words[kInFlight];
  for (int64_t begin = threadIdx.x; begin < n; begin += kInFlight * kBeginStepThreads) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t at = begin + i * kBeginStepThreads;
      if (at < n) words[i] = __ldcv(from + at);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t at = begin + i * kBeginStepThreads;
      if (at < n) to[at] = words[i];
    }
  }
}

__global__ void __launch_bounds__(kBeginStepThreads) begin_step_kernel(BeginStepParams p) {
  pdl_wait();
  const int64_t step = *p.n_steps;
  const int32_t* place = p.inbox + step % kStepRing * p.place_words;
  const int64_t n = p.n_rows;
  read_host(place, p.rows, 4 * n);
  read_host(place + p.requests_at, p.requests, p.n_request_words);
  __syncthreads();  // all have read n_steps, and the rows are there
  if (threadIdx.x == 0) *p.n_steps = step + 1;
  for (int64_t row = threadIdx.x; row < n; row += kBeginStepThreads) {
    int32_t token = p.rows[row];
    const int32_t pos = p.rows[n + row], slot = p.rows[2 * n + row];
    if (token < 0) {
      token = p.newest[slot];
      p.rows[row] = token;
    }
    if (pos >= 0) p.history[slot * p.n_ctx + pos] = token;
  }
}

}  // namespace fathom::cuda

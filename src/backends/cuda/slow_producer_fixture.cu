// SPDX-License-Identifier: Apache-2.0
// Kernels of slow_producer.hpp; sass_waits_test.cpp looks at the code of the readers.
#include "backends/cuda/slow_producer.hpp"

#include "kernels/common/arch.cuh"
#include "kernels/common/cuda_check.cuh"
#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

struct ProducerParams {
  ProducerPart parts[kMaxProducerParts];
  int n_parts;
};
struct ResultParams {
  ResultPart parts[kMaxProducerParts];
  int n_parts;
};

namespace {

constexpr unsigned kThreads = 512;

__device__ void write_parts(const ProducerParams& p) {
  for (int i = 0; i < p.n_parts; ++i) {
    auto* to = reinterpret_cast<uint32_t*>(p.parts[i].to);
    const auto* from = reinterpret_cast<const uint32_t*>(p.parts[i].from);
    for (int64_t k = threadIdx.x; k < p.parts[i].bytes / 4; k += blockDim.x) {
      to[k] = from ? from[k] : 0xffffffffu;
    }
  }
}

}  // namespace

__global__ void slow_producer_kernel(const __grid_constant__ ProducerParams p, int clocks) {
  pdl_launch_dependents();
  pdl_wait();
  const int64_t start = clock64();
  while (clock64() - start < clocks) {
  }
  write_parts(p);
}

__global__ void check_and_spoil_kernel(const __grid_constant__ ResultParams results,
                                       const __grid_constant__ ProducerParams p,
                                       unsigned* n_wrong) {
  unsigned wrong = 0;
  for (int i = 0; i < results.n_parts; ++i) {
    const auto* got = reinterpret_cast<const uint32_t*>(results.parts[i].got);
    const auto* expected = reinterpret_cast<const uint32_t*>(results.parts[i].expected);
    for (int64_t k = threadIdx.x; k < results.parts[i].bytes / 4; k += blockDim.x) {
      wrong += got[k] != expected[k];
    }
  }
  if (wrong > 0) atomicAdd(n_wrong, wrong);
  __syncthreads();
  write_parts(p);
}

__global__ void waiting_reader_kernel(const float* in, float* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  pdl_wait();
  out[i] = 2.0f * in[i];
}

__global__ void early_reader_kernel(const float* in, float* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = in[i];
  pdl_wait();
  out[i] = 2.0f * x;
}

void launch_slow_producer(std::span<const ProducerPart> parts, int clocks, void* stream) {
  ProducerParams p{};
  for (const ProducerPart& part : parts) p.parts[p.n_parts++] = part;
  launch(slow_producer_kernel, dim3(1), dim3(kThreads), 0, stream, p, clocks);
}

void launch_check_and_spoil(std::span<const ResultPart> results,
                            std::span<const ProducerPart> parts, unsigned* n_wrong, void* stream) {
  ResultParams r{};
  for (const ResultPart& part : results) r.parts[r.n_parts++] = part;
  ProducerParams p{};
  for (const ProducerPart& part : parts) p.parts[p.n_parts++] = part;
  launch_in_order(check_and_spoil_kernel, dim3(1), dim3(kThreads), stream, r, p, n_wrong);
}

void launch_reader(bool is_early, const float* in, float* out, int n, void* stream) {
  launch(is_early ? early_reader_kernel : waiting_reader_kernel,
         dim3(static_cast<unsigned>(n) / 256), dim3(256), 0, stream, in, out);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The launcher: checks size and alignment and covers every multiprocessor with four blocks.
#include "backends/cuda/read_stream.hpp"

#include <algorithm>

#include "backends/cuda/read_stream_kernel.cuh"
#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {

namespace {

constexpr int kBlockThreads = 512;

// Four blocks an SM, or what the bytes are enough for. Checks the arguments.
unsigned blocks_for(const ReadStreamArgs& args) {
  FATHOM_CHECK(args.bytes > 0 && args.bytes % 16 == 0, "read_stream takes whole 16-byte vectors");
  FATHOM_CHECK(reinterpret_cast<uintptr_t>(args.data) % 16 == 0, "data must be 16-byte aligned");
  constexpr int kBlocksPerSm = 4;
  int n_sms = 0;
  check(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0));
  const int64_t n_vectors = args.bytes / 16;
  return static_cast<unsigned>(std::min<int64_t>((n_vectors + kBlockThreads - 1) / kBlockThreads,
                                                 int64_t{n_sms} * kBlocksPerSm));
}

}  // namespace

void read_stream(const ReadStreamArgs& args, void* stream) {
  read_stream_kernel<<<blocks_for(args), kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const ulonglong2*>(args.data), args.bytes / 16,
      reinterpret_cast<unsigned long long*>(args.sum));
  check_launch("read_stream");
}

void read_cached(const ReadStreamArgs& args, int passes, void* stream) {
  FATHOM_CHECK(passes > 0, "read_cached makes at least one pass");
  read_cached_kernel<<<blocks_for(args), kBlockThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const ulonglong2*>(args.data), args.bytes / 16, passes,
      reinterpret_cast<unsigned long long*>(args.sum));
  check_launch("read_cached");
}

}  // namespace fathom::cuda

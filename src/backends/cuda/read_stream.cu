// SPDX-License-Identifier: Apache-2.0
// The launcher: checks size and alignment and covers every multiprocessor with four blocks.
#include "backends/cuda/read_stream.hpp"

#include <algorithm>

#include "kernels/common/cuda_check.cuh"
#include "backends/cuda/read_stream_kernel.cuh"
#include "base/check.hpp"

namespace fathom::cuda {

void read_stream(const ReadStreamArgs& args, void* stream) {
  FATHOM_CHECK(args.bytes > 0 && args.bytes % 16 == 0, "read_stream takes whole 16-byte vectors");
  FATHOM_CHECK(reinterpret_cast<uintptr_t>(args.data) % 16 == 0, "data must be 16-byte aligned");
  constexpr int kBlockThreads = 512;
  constexpr int kBlocksPerSm = 4;
  int n_sms = 0;
  check(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0));
  const int64_t n_vectors = args.bytes / 16;
  const int64_t n_blocks = std::min<int64_t>((n_vectors + kBlockThreads - 1) / kBlockThreads,
                                             int64_t{n_sms} * kBlocksPerSm);
  read_stream_kernel<<<static_cast<unsigned>(n_blocks), kBlockThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(
      static_cast<const ulonglong2*>(args.data), n_vectors,
      reinterpret_cast<unsigned long long*>(args.sum));
  check_launch("read_stream");
}

}  // namespace fathom::cuda

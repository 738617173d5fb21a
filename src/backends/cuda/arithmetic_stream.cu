// SPDX-License-Identifier: Apache-2.0
// The launcher: two blocks of 512 threads on every multiprocessor.
#include "backends/cuda/arithmetic_stream.hpp"

#include "backends/cuda/arithmetic_stream_kernel.cuh"
#include "base/check.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

constexpr int64_t kFewestPasses = 64;  // until a chain of multiply-adds has reached its fixed point
constexpr int64_t kMostPasses = int64_t{1} << 14;  // as long as the sums of products are exact

int64_t n_sms() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
  return n;
}

}  // namespace

ArithmeticWork arithmetic_stream(const ArithmeticStreamArgs& args, void* stream) {
  FATHOM_CHECK(args.passes >= kFewestPasses && args.passes <= kMostPasses, "64 to 16384 passes");
  const int64_t n_blocks = n_sms() * kArithmeticBlocks, n_threads = n_blocks * kArithmeticThreads;
  const auto grid = static_cast<unsigned>(n_blocks);
  const auto on = static_cast<cudaStream_t>(stream);
  int64_t ops = 0;
  switch (args.kind) {
    case Arithmetic::f32:
      fma_stream_kernel<<<grid, kArithmeticThreads, 0, on>>>(args.passes, 0.5f, 0.001f, args.right);
      ops = n_threads * kFmaChains * 2;
      break;
    case Arithmetic::f16_tensor:
      mma_stream_kernel<F16Products><<<grid, kArithmeticThreads, 0, on>>>(args.passes, args.right);
      ops = n_threads / 32 * kMmaChains * F16Products::kOps;
      break;
    case Arithmetic::int8_tensor:
      mma_stream_kernel<Int8Products><<<grid, kArithmeticThreads, 0, on>>>(args.passes, args.right);
      ops = n_threads / 32 * kMmaChains * Int8Products::kOps;
      break;
  }
  check_launch("arithmetic_stream");
  return {.ops = ops * args.passes, .threads = n_threads};
}

}  // namespace fathom::cuda

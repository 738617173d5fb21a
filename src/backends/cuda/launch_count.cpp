// SPDX-License-Identifier: Apache-2.0
// The linker sends calls of a launch function to __wrap_..., which calls the runtime's as
// __real_....
#include "backends/cuda/launch_count.hpp"

#include <cuda_runtime.h>

#include <atomic>

namespace fathom::cuda {
namespace {

std::atomic<int64_t> n_launches{0};
thread_local bool counts = true;

void count() {
  if (counts) n_launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int64_t kernel_launches() { return n_launches.load(std::memory_order_relaxed); }
void count_launches(bool count) { counts = count; }

}  // namespace fathom::cuda

extern "C" {

// Of kernel<<<...>>>.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                      size_t shared_bytes, cudaStream_t stream) {
  fathom::cuda::count();
  return __real___cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args) {
  fathom::cuda::count();
  return __real_cudaLaunchKernelExC(config, kernel, args);
}
}

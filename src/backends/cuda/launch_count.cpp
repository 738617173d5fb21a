// SPDX-License-Identifier: Apache-2.0
// The linker sends calls of a launch function to __wrap_..., which calls the runtime's as
// __real_....
#include "backends/cuda/launch_count.hpp"

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "backends/cuda/kernel_code.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

std::atomic<int64_t> n_launches{0};
thread_local bool counts = true;
thread_local int64_t n_captured = 0;

thread_local std::vector<SeenLaunch>* watched = nullptr;

void note(const SeenLaunch& launch) {
  if (counts) {
    n_launches.fetch_add(1, std::memory_order_relaxed);
  } else {
    ++n_captured;
  }
  if (watched) watched->push_back(launch);
}

std::string plain_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  return status == 0 ? plain.get() : mangled;
}

int attribute(cudaDeviceAttr what) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, what, 0));
  return value;
}

}  // namespace

KernelLaunch describe_launch(const SeenLaunch& seen) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, seen.kernel));
  const auto ints = [](dim3 d) {
    return std::array{static_cast<int>(d.x), static_cast<int>(d.y), static_cast<int>(d.z)};
  };
  KernelLaunch out;
  const char* mangled = nullptr;
  check(cudaFuncGetName(&mangled, seen.kernel));
  out.kernel = plain_name(mangled);
  out.code_hash = kernel_code_hash(mangled);
  out.grid = ints(seen.grid);
  out.block = ints(seen.block);
  out.shared_bytes = static_cast<int64_t>(attributes.sharedSizeBytes + seen.dynamic_bytes);
  out.local_bytes = static_cast<int64_t>(attributes.localSizeBytes);
  out.registers = attributes.numRegs;
  const int threads = out.block[0] * out.block[1] * out.block[2];
  // A later launch of the same kernel may have set a lower limit, beneath which nothing fits.
  if (seen.dynamic_bytes > static_cast<size_t>(attributes.maxDynamicSharedSizeBytes)) {
    check(cudaFuncSetAttribute(seen.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(seen.dynamic_bytes)));
  }
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&out.blocks_per_sm, seen.kernel, threads,
                                                      seen.dynamic_bytes));
  const int of_sm = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  out.occupancy = static_cast<double>(out.blocks_per_sm) * threads / of_sm;
  const double n_blocks = double{1.0 * out.grid[0]} * out.grid[1] * out.grid[2];
  const int n_sms = attribute(cudaDevAttrMultiProcessorCount);
  if (out.blocks_per_sm > 0) out.waves = n_blocks / (double{1.0 * n_sms} * out.blocks_per_sm);
  return out;
}

std::vector<KernelLaunch> watch_launches(const std::function<void()>& fn) {
  std::vector<SeenLaunch> seen;
  watched = &seen;
  try {
    fn();
  } catch (...) {
    watched = nullptr;
    throw;
  }
  watched = nullptr;
  std::vector<KernelLaunch> out;
  for (const SeenLaunch& launch : seen) out.push_back(describe_launch(launch));
  return out;
}

int64_t kernel_launches() { return n_launches.load(std::memory_order_relaxed); }
int64_t captured_kernels() { return n_captured; }
void count_launches(bool count) {
  counts = count;
  if (!count) n_captured = 0;
}

}  // namespace fathom::cuda

extern "C" {

// Of kernel<<<...>>>.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                      size_t shared_bytes, cudaStream_t stream) {
  fathom::cuda::note({kernel, grid, block, shared_bytes});
  return __real___cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream);
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args) {
  fathom::cuda::note({kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes});
  return __real_cudaLaunchKernelExC(config, kernel, args);
}
}

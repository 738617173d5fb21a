// SPDX-License-Identifier: Apache-2.0
// What every CUDA launcher uses: status codes as exceptions that name the call's place, and
// launches with programmatic dependence (kernels/common/arch.cuh has its device half).
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <utility>

namespace fathom::cuda {

// Throws Error{device_fault, out_of_memory} with CUDA's name and text of the error, and where the
// call stands.
void check(cudaError_t status, std::source_location where = std::source_location::current());

// The error state right after a launch: a wrong geometry shows here, under the kernel's own name.
void check_launch(const char* kernel, std::source_location where = std::source_location::current());

// For destructors: what cannot be given back any more is of no use to anybody.
inline void ignore(cudaError_t) noexcept {}

// All kernels ask for the same division of an SM's memory, the most shared memory: two that ask for
// different ones cannot stand on it together.
template <class Kernel>
void use_most_shared_memory(Kernel* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared));
}

// As launch(), in clusters of so many blocks.
template <class... Params, class... Args>
void launch_clusters(void (*kernel)(Params...), int cluster, dim3 grid, dim3 block,
                     size_t shared_bytes, void* stream, Args&&... args) {
  use_most_shared_memory(kernel);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

// Launches a kernel that may start while the one before it in the stream still runs; it reads what
// earlier kernels wrote after pdl_wait() only.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, void* stream,
            Args&&... args) {
  launch_clusters(kernel, 1, grid, block, shared_bytes, stream, std::forward<Args>(args)...);
}

// Compute capability 9 on: bulk copies to shared memory, and clusters of blocks.
inline bool has_bulk_copies() {
  int device = 0, major = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

// Launches a kernel that starts when all before it in the stream have ended.
template <class... Params, class... Args>
void launch_in_order(void (*kernel)(Params...), dim3 grid, dim3 block, void* stream,
                     Args&&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(stream);
  check(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The runtime calls of launchers; a launch runs the kernel, or keeps it for a graph.
#pragma once

#include <tuple>
#include <utility>

#include "cuda_runtime.h"
#include "emulator/device.hpp"

using cudaStream_t = void*;
using cudaError_t = int;
enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrReservedSharedMemoryPerBlock
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

inline cudaError_t cudaGetDevice(int* device) { return *device = 0; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = fathom::emulator::has_bulk_copies() ? 9 : 8;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = fathom::emulator::kSms;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = fathom::emulator::max_shared_bytes();
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = fathom::emulator::kReservedSharedBytes;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = fathom::emulator::max_shared_bytes() + fathom::emulator::kReservedSharedBytes;
      break;
  }
  return 0;
}
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute, int bytes) {
  fathom::emulator::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
  return 0;
}
template <class... Params>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Params...), int,
                                                          size_t) {
  *blocks = 1;
  return 0;
}

namespace fathom::cuda {

inline void check(cudaError_t) {}
inline void check_launch(const char*) {}
template <class Kernel>
void use_most_shared_memory(Kernel*) {}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, void* stream,
            Args&&... args) {
  emulator::submit(stream, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
                   [kernel, params = std::tuple<Params...>(std::forward<Args>(args)...)] {
                     std::apply(kernel, params);
                   });
}

template <class... Params, class... Args>
void launch_clusters(void (*kernel)(Params...), int, dim3 grid, dim3 block, size_t shared_bytes,
                     void* stream, Args&&... args) {
  launch(kernel, grid, block, shared_bytes, stream, std::forward<Args>(args)...);
}

inline bool has_bulk_copies() { return emulator::has_bulk_copies(); }

template <class... Params, class... Args>
void launch_in_order(void (*kernel)(Params...), dim3 grid, dim3 block, void* stream,
                     Args&&... args) {
  launch(kernel, grid, block, 0, stream, std::forward<Args>(args)...);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// How many clusters of blocks a device holds. tests/emulator has another one.
#pragma once

#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {

// Of so many blocks of the kernel, which may be more than every device with clusters takes: 0 where
// it takes none.
template <class... Params>
int clusters_that_fit(void (*kernel)(Params...), int cluster, int threads, int shared_bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int n = 0;
  if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) == cudaSuccess) return n;
  cudaGetLastError();  // of a cluster that is too large
  return 0;
}

}  // namespace fathom::cuda

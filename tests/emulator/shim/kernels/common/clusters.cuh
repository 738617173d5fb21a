// SPDX-License-Identifier: Apache-2.0
// Clusters are not emulated.
#pragma once

#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {

template <class... Params>
int clusters_that_fit(void (*)(Params...), int, int, int) {
  return 0;
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The elementwise functions of each instruction set, from one object per set.
#pragma once

#include "kernels/common/cpu_kernels.hpp"

namespace fathom {

ElementwiseKernels elementwise_scalar();
ElementwiseKernels elementwise_avx2();
ElementwiseKernels elementwise_avx512();

}  // namespace fathom

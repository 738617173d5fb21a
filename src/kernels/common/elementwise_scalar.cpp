// SPDX-License-Identifier: Apache-2.0
// The elementwise functions of elementwise_simd.hpp for every CPU, without intrinsics.
#include "kernels/common/elementwise_simd.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/common/simd_scalar.hpp"

namespace fathom {

ElementwiseKernels elementwise_scalar() { return Elementwise<Scalar>::table(); }

}  // namespace fathom

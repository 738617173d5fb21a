// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/elementwise_simd.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/common/simd_avx2.hpp"

namespace fathom {

ElementwiseKernels elementwise_avx2() { return Elementwise<Avx2>::table(); }

}  // namespace fathom

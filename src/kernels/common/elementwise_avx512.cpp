// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/elementwise_simd.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/common/simd_avx512.hpp"

namespace fathom {

ElementwiseKernels elementwise_avx512() { return Elementwise<Avx512>::table(); }

}  // namespace fathom

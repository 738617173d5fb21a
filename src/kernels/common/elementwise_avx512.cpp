// SPDX-License-Identifier: Apache-2.0
// The elementwise functions of elementwise_simd.hpp for AVX-512, in an object that alone has the
// flags of that set.
#include "kernels/common/elementwise_simd.hpp"
#include "kernels/common/elementwise_tables.hpp"
#include "kernels/common/simd_avx512.hpp"

namespace fathom {

ElementwiseKernels elementwise_avx512() { return Elementwise<Avx512>::table(); }

}  // namespace fathom

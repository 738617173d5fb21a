// SPDX-License-Identifier: Apache-2.0
// The products of every format for the scalar instruction set.
#include "kernels/common/simd_scalar.hpp"
#include "kernels/quant/matmul_simd.hpp"
#include "kernels/quant/matmul_tables.hpp"

namespace fathom::quant {

void fill_matmul_scalar(MatmulFn* table) { fill_matmul<Scalar>(table); }

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// The products of every format for the avx2 instruction set.
#include "kernels/common/simd_avx2.hpp"
#include "kernels/quant/matmul_simd.hpp"
#include "kernels/quant/matmul_tables.hpp"

namespace fathom::quant {

void fill_matmul_avx2(MatmulFn* table) { fill_matmul<Avx2>(table); }

}  // namespace fathom::quant

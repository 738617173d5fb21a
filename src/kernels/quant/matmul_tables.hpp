// SPDX-License-Identifier: Apache-2.0
// Each fills the entries of the formats it has, by DType id.
#pragma once

#include "kernels/common/cpu_kernels.hpp"

namespace fathom::quant {

void fill_matmul_scalar(MatmulFn* table);
void fill_matmul_avx2(MatmulFn* table);
void fill_matmul_avx512(MatmulFn* table);

}  // namespace fathom::quant

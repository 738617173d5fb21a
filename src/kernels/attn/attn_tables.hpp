// SPDX-License-Identifier: Apache-2.0
// The attention functions of each instruction set, for the tables of cpu_kernels.cpp.
#pragma once

#include "kernels/common/cpu_kernels.hpp"

namespace fathom {

AttnKernels attn_kernels_scalar();
AttnKernels attn_kernels_avx2();
AttnKernels attn_kernels_avx512();

}  // namespace fathom

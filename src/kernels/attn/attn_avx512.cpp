// SPDX-License-Identifier: Apache-2.0
// The attention template in AVX-512; its own file because its own compiler flags.
#include "kernels/attn/attn_simd.hpp"
#include "kernels/attn/attn_tables.hpp"
#include "kernels/common/simd_avx512.hpp"

namespace fathom {

AttnKernels attn_kernels_avx512() { return Attention<Avx512>::table(); }

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The attention template in AVX2; its own file because its own compiler flags.
#include "kernels/attn/attn_simd.hpp"
#include "kernels/attn/attn_tables.hpp"
#include "kernels/common/simd_avx2.hpp"

namespace fathom {

AttnKernels attn_kernels_avx2() { return Attention<Avx2>::table(); }

}  // namespace fathom

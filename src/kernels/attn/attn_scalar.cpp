// SPDX-License-Identifier: Apache-2.0
// The attention template without vector instructions: what every machine can run.
#include "kernels/attn/attn_simd.hpp"
#include "kernels/attn/attn_tables.hpp"
#include "kernels/common/simd_scalar.hpp"

namespace fathom {

AttnKernels attn_kernels_scalar() { return Attention<Scalar>::table(); }

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The exact cache is for comparisons: one form, without MMAs.
#include "kernels/attn/attn_variant_kernel.cuh"

namespace fathom::cuda {

AttnVariant attn_variant_f32(int head_dim, int) {
  return find_attn_variant<KvFormat::f32, 2, 16, 32, 64, 80, 96, 128, 256>(head_dim);
}

}  // namespace fathom::cuda

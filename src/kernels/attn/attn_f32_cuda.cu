// SPDX-License-Identifier: Apache-2.0
// The kernels over a f32 cache, without MMAs: for comparisons.
#include "kernels/attn/attn_variant_kernel.cuh"

namespace fathom::cuda {

AttnVariant attn_variant_f32(int head_dim, int n_tiles) {
  return n_tiles == 1 ? find_attn_variant<KvFormat::f32, 1, 16, 32, 64, 80, 96, 128, 256>(head_dim)
                      : find_attn_variant<KvFormat::f32, 4, 16, 32, 64, 80, 96, 128, 256>(head_dim);
}

}  // namespace fathom::cuda

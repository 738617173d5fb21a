// SPDX-License-Identifier: Apache-2.0
// The kernels over a q8_0 cache, a file of their own so that formats compile side by side.
#include "kernels/attn/attn_variant_kernel.cuh"

namespace fathom::cuda {

AttnVariant attn_variant_q8_0(int head_dim, int n_tiles) {
  return n_tiles == 1 ? find_attn_variant<KvFormat::q8_0, 1, 32, 64, 96, 128, 256>(head_dim)
                      : find_attn_variant<KvFormat::q8_0, 4, 32, 64, 96, 128, 256>(head_dim);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The kernels over an fp8_e4m3 cache, a file of their own so that formats compile side by side.
#include "kernels/attn/attn_variant_kernel.cuh"

namespace fathom::cuda {

AttnVariant attn_variant_fp8_e4m3(int head_dim, int n_tiles) {
  return n_tiles == 1
             ? find_attn_variant<KvFormat::fp8_e4m3, 1, 16, 32, 64, 80, 96, 128, 256>(head_dim)
             : find_attn_variant<KvFormat::fp8_e4m3, 4, 16, 32, 64, 80, 96, 128, 256>(head_dim);
}

}  // namespace fathom::cuda

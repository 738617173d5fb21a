// SPDX-License-Identifier: Apache-2.0
// The kernels of many rows over a bf16 cache, a file of their own so that formats compile side by
// side.
#include "kernels/attn/attn_flash_variant_kernel.cuh"

namespace fathom::cuda {

AttnFlashVariant attn_flash_variant_bf16(int head_dim) {
  return find_attn_flash_variant<KvFormat::bf16, 64, 80, 96, 128, 256>(head_dim);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The variants of attn_kernel that are emulated, few since they take long to compile, and no kernel
// of many rows, whose warpgroups are not.
#include "base/error.hpp"
#include "kernels/attn/attn_flash_launch.hpp"
#include "kernels/attn/attn_variant_kernel.cuh"

namespace fathom::cuda {

bool takes_attn_flash(const AttnArgs::Static&, int) { return false; }
void attn_flash(ExecContext&, const AttnArgs&) {
  fail(ErrorCode::unsupported, "attention of warpgroups is not emulated");
}

AttnVariant attn_variant_f32(int, int) { return {}; }
AttnVariant attn_variant_f16(int head_dim, int n_tiles) {
  return n_tiles == 1 ? find_attn_variant<KvFormat::f16, 1, 16, 64>(head_dim)
                      : find_attn_variant<KvFormat::f16, 4, 16, 64>(head_dim);
}
AttnVariant attn_variant_bf16(int, int) { return {}; }
AttnVariant attn_variant_q8_0(int head_dim, int n_tiles) {
  return n_tiles == 1 ? find_attn_variant<KvFormat::q8_0, 1, 64, 128>(head_dim)
                      : find_attn_variant<KvFormat::q8_0, 4, 64, 128>(head_dim);
}
AttnVariant attn_variant_fp8_e4m3(int head_dim, int n_tiles) {
  return n_tiles == 1 ? find_attn_variant<KvFormat::fp8_e4m3, 1, 80>(head_dim)
                      : find_attn_variant<KvFormat::fp8_e4m3, 4, 80>(head_dim);
}

}  // namespace fathom::cuda

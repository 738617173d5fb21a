// SPDX-License-Identifier: Apache-2.0
// The variants of attn_flash_kernel by format, each format compiled in a file of its own.
#pragma once

#include "kernels/attn/attn_flash_kernel.cuh"

namespace fathom::cuda {

struct AttnFlashVariant {
  void (*kernel)(AttnFlashParams) = nullptr;
  int shared_bytes = 0;  // without rows; 8 bytes a row come on top
};

AttnFlashVariant attn_flash_variant_f16(int head_dim);
AttnFlashVariant attn_flash_variant_bf16(int head_dim);
AttnFlashVariant attn_flash_variant_q8_0(int head_dim);

// Of the head dims kHeadDims; null where there is none.
template <KvFormat kFormat, int... kHeadDims>
AttnFlashVariant find_attn_flash_variant(int head_dim) {
  AttnFlashVariant out;
  ((head_dim == kHeadDims ? void(out = {attn_flash_kernel<kFormat, kHeadDims>,
                                        AttnFlashLayout<kFormat, kHeadDims>::shared_bytes(0)})
                          : void()),
   ...);
  return out;
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The variants of attn_kernel by format, each format compiled in a file of its own.
#pragma once

#include "kernels/attn/attn_kernel.cuh"

namespace fathom::cuda {

struct AttnVariant {
  void (*kernel)(AttnParams) = nullptr;
  int threads = 0;
  int shared_bytes = 0;  // without rows; 16 bytes a row come on top
};

AttnVariant attn_variant_f32(int head_dim, int n_tiles);
AttnVariant attn_variant_f16(int head_dim, int n_tiles);
AttnVariant attn_variant_bf16(int head_dim, int n_tiles);
AttnVariant attn_variant_q8_0(int head_dim, int n_tiles);
AttnVariant attn_variant_fp8_e4m3(int head_dim, int n_tiles);

template <KvFormat kFormat, int kHeadDim, int kTiles>
AttnVariant make_attn_variant() {
  using L = AttnLayout<kFormat, kHeadDim, kTiles>;
  return {attn_kernel<kFormat, kHeadDim, kTiles>, L::kThreads, L::shared_bytes(0)};
}

// Of the head dims kHeadDims; null where there is none.
template <KvFormat kFormat, int kTiles, int... kHeadDims>
AttnVariant find_attn_variant(int head_dim) {
  AttnVariant out;
  ((head_dim == kHeadDims ? void(out = make_attn_variant<kFormat, kHeadDims, kTiles>()) : void()),
   ...);
  return out;
}

}  // namespace fathom::cuda

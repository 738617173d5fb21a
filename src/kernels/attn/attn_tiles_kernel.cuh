// SPDX-License-Identifier: Apache-2.0
// K and V tiles on their way from the cache, and where their values lie in shared memory.
#pragma once

#include "kernels/attn/attn_mma_kernel.cuh"
#include "kernels/attn/attn_work_kernel.cuh"

namespace fathom::cuda {

template <class L>
class AttnTiles {
 public:
  __device__ explicit AttnTiles(const AttnThread<L>& at) : at_(at) {}

  template <bool kOfValues>
  __device__ std::byte* tile(int stage, int warp) const {
    return at_.shared + (kOfValues ? L::kValues : L::kKeys) + stage * L::kStageBytes +
           warp * L::kTileBytes;
  }
  template <bool kOfValues>
  __device__ std::byte* tile(int stage) const {
    return tile<kOfValues>(stage, at_.warp);
  }

  // 16-byte chunks are moved so that the 8 rows of a matrix lie in different banks.
  static constexpr int kRowChunks = L::kDims * L::kValueBytes / 16;  // of a token's V
  __device__ static int value_chunk(int token, int chunk) {
    constexpr int kCommon = kRowChunks % 8 == 0   ? 8
                            : kRowChunks % 4 == 0 ? 4
                            : kRowChunks % 2 == 0 ? 2
                                                  : 1;
    if constexpr (L::kF32) return token * kRowChunks + chunk;
    return token * kRowChunks + (chunk ^ (token / (8 / kCommon) % kCommon));
  }
  __device__ static int key_chunk(int chunk) {
    if constexpr (L::kF32 || L::kCodes) return chunk;
    return chunk ^ (chunk / 8 % 2);
  }

  // The warp's tile of the step. V past the end becomes zeros: a weight of 0 times NaN is NaN.
  template <bool kOfValues>
  __device__ void copy(const AttnStep& s, int stage) const {
    const int left = s.len - s.token - at_.warp * kKvTileTokens;
    if (!s.valid || left <= 0) return;
    const std::byte* from = (kOfValues ? at_.params.kv.v : at_.params.kv.k) + s.offset;
    std::byte* to = tile<kOfValues>(stage);
    for (int chunk = at_.lane; chunk < L::kTileBytes / 16; chunk += 32) {
      int at = chunk;
      bool inside = true;
      if constexpr (kOfValues) {
        if (chunk < kKvTileTokens * kRowChunks) {
          const int token = chunk / kRowChunks;
          at = value_chunk(token, chunk % kRowChunks);
          inside = token < left;
        }
      } else if (chunk < L::kScaleOffset * L::kValueBytes / 16) {
        at = key_chunk(chunk);
      }
      attn_copy_async(to + at * 16, from + chunk * 16, inside);
    }
  }

 private:
  const AttnThread<L> at_;
};

}  // namespace fathom::cuda

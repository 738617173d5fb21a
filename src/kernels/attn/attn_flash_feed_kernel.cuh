// SPDX-License-Identifier: Apache-2.0
// The warpgroup of attn_flash_kernel that fetches K and V: out of the pages, into rings in shared
// memory as wgmma reads them. Halves go by asynchronous copies of 16 bytes; codes of q8_0 through
// registers, where they become f16, and are on their way while there is no room for them yet.
#pragma once

#include <cuda_fp16.h>

#include "kernels/attn/attn_flash_wgmma_kernel.cuh"
#include "kernels/attn/attn_flash_work_kernel.cuh"

namespace fathom::cuda {

// Where 16 bytes of a cache tile's halves, its piece `piece` (counted as it is stored), stand in
// its kTileBytes of shared memory.
template <class L>
struct AttnFlashPlaces {
  __device__ static uint32_t key(int piece) {
    return attn_flash_swizzle<L::kKeyWidth>(static_cast<uint32_t>(piece) * 16);
  }
  __device__ static uint32_t value(int piece) {
    constexpr int kOfToken = L::kDims / 8, kOfRow = L::kValueWidth / 16;
    const int token = piece / kOfToken, i = piece % kOfToken;
    return attn_flash_swizzle<L::kValueWidth>(static_cast<uint32_t>(
        (i / kOfRow * kKvTileTokens + token) * L::kValueWidth + i % kOfRow * 16));
  }
};

// Codes and scales of a cache tile of q8_0, a warp's share of each lane.
template <class L>
struct AttnFlashCodes {
  static constexpr int kCopies = L::kDims / 32, kWords = (L::kDims / 4 + 31) / 32;
  uint4 codes[kCopies];
  uint32_t scales[kWords];  // two f16 each: word 8 * block + token / 2

  // REQUIRES: all lanes call it.
  __device__ void load(const std::byte* from, int lane) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      codes[i] = *reinterpret_cast<const uint4*>(from + (i * 32 + lane) * 16);
    }
    const auto* words = reinterpret_cast<const uint32_t*>(from + L::kDims * kKvTileTokens);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      scales[i] = i * 32 + lane < L::kDims / 4 ? words[i * 32 + lane] : 0;
    }
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) codes[i] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kWords; ++i) scales[i] = 0;
  }

  // A lane has all 16 tokens of a dim.
  __device__ void store_keys(uint32_t to, int lane) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      uint32_t halves[8];
#pragma unroll
      for (int pair = 0; pair < 8; ++pair) {
        const int word = i * 8 + pair;
        halves[pair] =
            product(codes[i], pair, __shfl_sync(0xffffffffu, scales[word / 32], word % 32));
      }
      store(to, AttnFlashPlaces<L>::key((i * 32 + lane) * 2),
            AttnFlashPlaces<L>::key((i * 32 + lane) * 2 + 1), halves);
    }
  }
  // A lane has 16 dims of a token; tokens from n_tokens on become zeros.
  __device__ void store_values(uint32_t to, int lane, int n_tokens) const {
    constexpr int kOfToken = L::kDims / 16;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int piece = i * 32 + lane, token = piece / kOfToken;
      const int word = piece % kOfToken / 2 * 8 + token / 2;
      uint32_t pair = __shfl_sync(0xffffffffu, scales[0], word % 32);
      if constexpr (kWords > 1) {
        const uint32_t second = __shfl_sync(0xffffffffu, scales[1], word % 32);
        pair = word < 32 ? pair : second;
      }
      const uint32_t scale = __byte_perm(pair, 0, token % 2 == 0 ? 0x1010 : 0x3232);
      uint32_t halves[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) halves[j] = token < n_tokens ? product(codes[i], j, scale) : 0;
      store(to, AttnFlashPlaces<L>::value(piece * 2), AttnFlashPlaces<L>::value(piece * 2 + 1),
            halves);
    }
  }

 private:
  // Codes 2 pair and 2 pair + 1, times the scales: 1024 + 128 + the code, less 1152.
  __device__ static uint32_t product(const uint4& codes, int pair, uint32_t scales) {
    const uint32_t of[4] = {codes.x, codes.y, codes.z, codes.w};
    const uint32_t biased =
        __byte_perm(of[pair / 2] ^ 0x80808080u, 0x64646464u, pair % 2 == 0 ? 0x4140 : 0x4342);
    constexpr uint32_t kBias = 0x64806480u;
    const __half2 x = __hmul2(
        __hsub2(reinterpret_cast<const __half2&>(biased), reinterpret_cast<const __half2&>(kBias)),
        reinterpret_cast<const __half2&>(scales));
    return reinterpret_cast<const uint32_t&>(x);
  }
  __device__ static void store(uint32_t to, uint32_t first, uint32_t second,
                               const uint32_t (&x)[8]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to + first), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to + second), "r"(x[4]), "r"(x[5]),
                 "r"(x[6]), "r"(x[7])
                 : "memory");
  }
};

template <class L>
class AttnFlashFeed {
 public:
  __device__ AttnFlashFeed(const AttnFlashParams& params, const AttnFlashWork<L>& work,
                           uint32_t shared, AttnFlashBarriers<L> barriers)
      : params_(params),
        work_(work),
        shared_(shared),
        barriers_(barriers),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    AttnFlashPlace at;
    at.parity = 1;
    for (int round = 0;; ++round) {
      const AttnFlashItem item = work_.item(round);
      if (!item.valid) return;
      const int32_t* pages =
          params_.page_table + int64_t{params_.slot[item.row]} * params_.max_pages;
      int64_t offset[L::kWarpTiles];
      find_tiles(offset, pages, item, 0);
      for (int token = 0; token < item.len; token += L::kTokens) {
        if constexpr (L::kCodes) {
          AttnFlashCodes<L> codes[L::kWarpTiles];
          load(codes, params_.kv.k, offset);
          mbarrier_wait(barriers_.keys_empty(at.stage), at.parity);
#pragma unroll
          for (int i = 0; i < L::kWarpTiles; ++i) {
            codes[i].store_keys(tile(L::kKeys, at.stage, i), lane_);
          }
          arrive_stored(barriers_.keys_full(at.stage));
          load(codes, params_.kv.v, offset);
          mbarrier_wait(barriers_.values_empty(at.stage), at.parity);
#pragma unroll
          for (int i = 0; i < L::kWarpTiles; ++i) {
            codes[i].store_values(tile(L::kValues, at.stage, i), lane_,
                                  item.len - first_token(token, i));
          }
          arrive_stored(barriers_.values_full(at.stage));
        } else {
          mbarrier_wait(barriers_.keys_empty(at.stage), at.parity);
#pragma unroll
          for (int i = 0; i < L::kWarpTiles; ++i) {
            if (offset[i] >= 0) copy_keys(tile(L::kKeys, at.stage, i), offset[i]);
          }
          arrive_copied(barriers_.keys_full(at.stage));
          mbarrier_wait(barriers_.values_empty(at.stage), at.parity);
#pragma unroll
          for (int i = 0; i < L::kWarpTiles; ++i) {
            copy_values(tile(L::kValues, at.stage, i), offset[i], item.len - first_token(token, i));
          }
          arrive_copied(barriers_.values_full(at.stage));
        }
        find_tiles(offset, pages, item, token + L::kTokens);
        at.template next<L::kStages>();
      }
    }
  }

 private:
  // Where the warp's tiles of the step from `token` on are in the cache.
  __device__ void find_tiles(int64_t (&offset)[L::kWarpTiles], const int32_t* pages,
                             const AttnFlashItem& item, int token) const {
#pragma unroll
    for (int i = 0; i < L::kWarpTiles; ++i) {
      offset[i] = tile_offset(pages, item, first_token(token, i));
    }
  }
  __device__ int first_token(int token, int i) const {
    return token + (i * 4 + warp_) * kKvTileTokens;
  }
  __device__ uint32_t tile(int ring, int stage, int i) const {
    return shared_ + ring + stage * L::kStageBytes + (i * 4 + warp_) * L::kTileBytes;
  }
  // In the cache; negative where there are no such tokens.
  __device__ int64_t tile_offset(const int32_t* pages, const AttnFlashItem& item, int token) const {
    if (token >= item.len) return -1;
    const int of_sequence = token / kKvTileTokens, per_page = params_.tiles_per_page;
    const int page =
        per_page == 1
            ? of_sequence
            : static_cast<int>(__umulhi(static_cast<unsigned>(of_sequence), params_.page_factor));
    const int64_t head = int64_t{pages[page]} * params_.n_kv_heads + item.kv_head;
    return (head * per_page + of_sequence - page * per_page) * L::kCacheTileBytes;
  }

  // What lies past the end is masked.
  __device__ void copy_keys(uint32_t to, int64_t offset) const {
    const std::byte* from = params_.kv.k + offset + lane_ * 16;
    to += AttnFlashPlaces<L>::key(lane_);
#pragma unroll
    for (int i = 0; i < L::kTileBytes / 512; ++i) copy(to + i * 512, from + i * 512, true);
  }
  // What lies past the end becomes zeros: a weight of 0 times NaN is NaN.
  __device__ void copy_values(uint32_t to, int64_t offset, int n_tokens) const {
    const std::byte* from = params_.kv.v + (offset < 0 ? 0 : offset) + lane_ * 16;
#pragma unroll
    for (int i = 0; i < L::kTileBytes / 512; ++i) {
      const int piece = i * 32 + lane_;
      copy(to + AttnFlashPlaces<L>::value(piece), from + i * 512,
           piece / (L::kDims / 8) < n_tokens);
    }
  }
  __device__ static void copy(uint32_t to, const std::byte* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
  }
  // When this thread's copies have landed.
  __device__ static void arrive_copied(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  }
  __device__ static void arrive_stored(uint32_t barrier) {
    async_proxy_fence();
    mbarrier_arrive(barrier);
  }

  __device__ void load(AttnFlashCodes<L> (&codes)[L::kWarpTiles], const std::byte* cache,
                       const int64_t (&offset)[L::kWarpTiles]) const {
#pragma unroll
    for (int i = 0; i < L::kWarpTiles; ++i) {
      if (offset[i] >= 0) {
        codes[i].load(cache + offset[i], lane_);
      } else {
        codes[i].clear();
      }
    }
  }

  const AttnFlashParams& params_;
  const AttnFlashWork<L>& work_;
  uint32_t shared_;
  AttnFlashBarriers<L> barriers_;
  int warp_, lane_;
};

}  // namespace fathom::cuda

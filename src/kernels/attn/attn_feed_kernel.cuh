// SPDX-License-Identifier: Apache-2.0
// K and V on their way from the cache into a stream's ring, and where their values lie there. The
// ring holds K and V of a leaf in turn; a slot is filled again as soon as its content is used.
#pragma once

#include "kernels/attn/attn_mma_kernel.cuh"
#include "kernels/attn/attn_work_kernel.cuh"
#include "kernels/common/arch.cuh"

namespace fathom::cuda {

// 16-byte chunks of a tile are moved so that the 8 rows of a matrix lie in different banks.
template <class L>
struct AttnSwizzle {
  static constexpr int kRowChunks = L::kDims * L::kValueBytes / 16;  // of a token's V
  static constexpr int kCommon = kRowChunks % 8 == 0   ? 8
                                 : kRowChunks % 4 == 0 ? 4
                                 : kRowChunks % 2 == 0 ? 2
                                                       : 1;
  // A matrix of K has dims 4 i and 4 i + 1, or the two after them, for i = 0..3.
  __device__ static int key(int chunk) {
    if constexpr (L::kF32) return chunk;
    if constexpr (L::kCodes) return chunk ^ (chunk / 8 % 2 * 2);
    return chunk ^ ((chunk / 8 & 1) | (chunk / 8 & 2) << 1);
  }
  // A matrix of V has 8 tokens in order, or of codes the even or the odd ones.
  __device__ static int value(int token, int chunk) {
    if constexpr (L::kF32) return token * kRowChunks + chunk;
    const int turn = L::kCodes ? token / 2 : token / (8 / kCommon);
    return token * kRowChunks + (chunk ^ (turn % kCommon));
  }
};

template <class L>
class AttnFeed {
 public:
  __device__ AttnFeed(const AttnThread<L>& at, const AttnWork<L>& work) : at_(at), work_(work) {}

  // Fills the ring. What was cached before this step is under way before the wait for the kernel
  // that makes q and the step's own tokens; the lines of a tile that gets one of these come near.
  __device__ void start() {
#pragma unroll 1
    for (int late = 0; late < 2; ++late) {
      if (late) pdl_wait();
      move_to(work_.first(static_cast<int>(blockIdx.x)));
#pragma unroll 1
      for (int i = 0; i < L::kSlots; ++i) {
        const int n_cached = next_.valid ? work_.n_cached(next_) : 0;
        if (i % 2 == 0) {
          copy<false>(i, n_cached, !late);
        } else {
          copy<true>(i, n_cached, !late);
        }
        if (late) attn_copies_commit();
        if (i % 2 == 1) move_on();
      }
    }
  }

  // The slot's content was used by all threads of the stream: K or V of a leaf ahead goes there.
  template <bool kAfterValues>
  __device__ void refill(int slot) {
    constexpr bool kOfValues = (L::kSlots % 2 == 1) != kAfterValues;
    copy<kOfValues>(slot, 0, false);
    attn_copies_commit();
    if constexpr (kOfValues) move_on();
  }

 private:
  __device__ void move_on() {
    AttnCursor c = next_;
    if (c.valid) work_.advance(c);
    move_to(c);
  }
  // The pages are read now and used when the leaf is copied.
  __device__ void move_to(const AttnCursor& c) {
    next_ = c;
    token_ = work_.token(c);
    if (!c.valid || token_ >= c.end) return;
    const int32_t* pages = work_.pages(c);
    const int tiles_per_page = at_.params.kv.geometry.page_tokens / kKvTileTokens;
    const int tile = token_ / kKvTileTokens, page = tile / tiles_per_page;
    tile_[0] = tile - page * tiles_per_page;
    page_[0] = pages[page];
    const bool same_page = tile_[0] + 1 < tiles_per_page;
    tile_[1] = same_page ? tile_[0] + 1 : 0;
    page_[1] = page_[0];
    if (!same_page && token_ + kKvTileTokens < c.len) page_[1] = pages[page + 1];
  }
  __device__ int64_t tile_offset(int i) const {
    const int tiles_per_page = at_.params.kv.geometry.page_tokens / kKvTileTokens;
    const int64_t head = int64_t{page_[i]} * at_.params.n_kv_heads + next_.kv_head;
    return (head * tiles_per_page + tile_[i]) * L::kTileBytes;
  }

  // Those tiles of the leaf that were cached before the step, or the others.
  template <bool kOfValues>
  __device__ void copy(int slot, int n_cached, bool cached) const {
    if (!next_.valid || token_ >= next_.end) return;
    std::byte* to = at_.slot(at_.stream, slot);
    const std::byte* cache = kOfValues ? at_.params.kv.v : at_.params.kv.k;
#pragma unroll
    for (int i = 0; i < L::kLeafTiles; ++i) {
      const int first = token_ + i * kKvTileTokens;
      if ((first + kKvTileTokens <= n_cached) == cached) {
        copy_tile<kOfValues>(to + i * L::kTileBytes, cache, i, next_.len - first);
      } else if (first < n_cached && cached) {
        const std::byte* from = cache + tile_offset(i);
        for (int line = thread(); line * 128 < L::kTileBytes; line += L::kStreamThreads)
          attn_prefetch_l2(from + line * 128);
      }
    }
  }
  // V past the end becomes zeros: a weight of 0 times NaN is NaN.
  template <bool kOfValues>
  __device__ void copy_tile(std::byte* to, const std::byte* cache, int i, int left) const {
    using Swizzle = AttnSwizzle<L>;
    if (!kOfValues && left <= 0) return;
    const std::byte* from = left > 0 ? cache + tile_offset(i) : cache;
    constexpr int kChunks = L::kTileBytes / 16;
#pragma unroll
    for (int first = 0; first < kChunks; first += L::kStreamThreads) {
      const int chunk = first + thread();
      if (kChunks % L::kStreamThreads != 0 && chunk >= kChunks) break;
      int at = chunk;
      bool inside = left > 0;
      if constexpr (kOfValues) {
        if (chunk < kKvTileTokens * Swizzle::kRowChunks) {
          const int token = chunk / Swizzle::kRowChunks;
          at = Swizzle::value(token, chunk % Swizzle::kRowChunks);
          inside = token < left;
        }
      } else if (chunk < L::kScaleOffset * L::kValueBytes / 16) {
        at = Swizzle::key(chunk);
      }
      attn_copy_async(to + at * 16, from + chunk * 16, inside);
    }
  }
  __device__ int thread() const { return at_.tile * 32 + at_.lane; }  // of the stream

  const AttnThread<L> at_;
  const AttnWork<L> work_;  // a copy: of a reference the compiler would keep the object in memory
  AttnCursor next_;  // to be copied
  int token_, tile_[L::kLeafTiles], page_[L::kLeafTiles];
};

}  // namespace fathom::cuda

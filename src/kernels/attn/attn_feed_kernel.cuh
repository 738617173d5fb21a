// SPDX-License-Identifier: Apache-2.0
// K and V on their way from the cache into a stream's ring, and where their values lie there. The
// ring holds K and V of a leaf in turn; a slot is filled again as soon as its content is used.
#pragma once

#include "kernels/attn/attn_mma_kernel.cuh"
#include "kernels/attn/attn_work_kernel.cuh"

namespace fathom::cuda {

// 16-byte chunks of a tile are moved so that the 8 rows of a matrix lie in different banks.
template <class L>
struct AttnSwizzle {
  static constexpr unsigned kRowChunks = L::kDims * L::kValueBytes / 16;  // of a token's V
  static constexpr unsigned kCommon = kRowChunks % 8 == 0   ? 8
                                      : kRowChunks % 4 == 0 ? 4
                                      : kRowChunks % 2 == 0 ? 2
                                                            : 1;
  // A matrix of K has dims 4 i and 4 i + 1, or the two after them, for i = 0..3. The turn does not
  // depend on multiples of 32 chunks.
  __device__ static unsigned key(unsigned chunk) {
    if constexpr (L::kF32) return chunk;
    if constexpr (L::kCodes) return chunk ^ (chunk / 8 % 2 * 2);
    return chunk ^ ((chunk / 8 & 1) | (chunk / 8 & 2) << 1);
  }
  // A matrix of V has 8 tokens in order, or of codes the even or the odd ones.
  __device__ static unsigned value(unsigned token, unsigned chunk) {
    if constexpr (L::kF32) return token * kRowChunks + chunk;
    const unsigned turn = L::kCodes ? token / 2 : token / (8 / kCommon);
    return token * kRowChunks + (chunk ^ (turn % kCommon));
  }
};

// A leaf of the stream and where its tiles lie in the cache.
struct AttnSource {
  static constexpr int kTiles = kAttnLeafTokens / kKvTileTokens;
  bool is_live;
  int token, len, kv_head;
  int page[kTiles], tile[kTiles];
};

template <class L>
class AttnFeed {
  static_assert(L::kLeafTiles == AttnSource::kTiles);

 public:
  __device__ AttnFeed(const AttnThread<L>& at, const AttnWork<L>& work) : at_(at), work_(work) {}

  // Before the wait for the kernel that makes q and the step's own tokens: what was cached before
  // this step is under way, as far as the ring holds it and no second leaf gets such tokens. The
  // lines of a tile that gets one come near.
  __device__ void start_early(const AttnCursor& first) {
    move_to(first);
    late_slot_ = -1;
    late_.is_live = false;
#pragma unroll 1
    for (filled_ = 0; filled_ < L::kSlots; ++filled_) {
      const int n_cached = source_.is_live ? work_.n_cached(next_) : 0;
      if (filled_ % 2 == 0) {
        if (source_.is_live && n_cached < min(source_.len, source_.token + kAttnLeafTokens)) {
          if (late_slot_ >= 0) break;
          late_slot_ = filled_;
          late_ = source_;
          late_cached_ = n_cached;
        }
      }
      copy(source_, filled_, filled_ % 2 == 1, n_cached, true);
      if (filled_ % 2 == 1) move_on();
    }
  }
  // After it: the rest.
  __device__ void start_late() {
#pragma unroll 1
    for (int slot = 0; slot < L::kSlots; ++slot) {
      const bool is_late = late_slot_ >= 0 && slot / 2 == late_slot_ / 2 && slot < filled_;
      if (is_late || slot >= filled_) {
        AttnSource source = source_;
        if (is_late) source = late_;
        copy(source, slot, slot % 2 == 1, is_late ? late_cached_ : 0, false);
        if (!is_late && slot % 2 == 1) move_on();
      }
      attn_copies_commit();
    }
  }

  // The slot's content was used by all threads of the stream: K or V of a leaf ahead goes there.
  template <bool kAfterValues>
  __device__ void refill(int slot) {
    constexpr bool kOfValues = (L::kSlots % 2 == 1) != kAfterValues;
    copy(source_, slot, kOfValues, 0, false);
    attn_copies_commit();
    if constexpr (kOfValues) move_on();
  }

 private:
  __device__ void move_on() {
    if (!next_.valid) return;
    AttnCursor c = next_;
    work_.advance(c);
    move_to(c);
  }
  // The pages are read now and used when the leaf is copied.
  __device__ void move_to(const AttnCursor& c) {
    next_ = c;
    source_.token = work_.token(c);
    source_.is_live = c.valid && source_.token < c.end;
    if (!source_.is_live) return;
    source_.len = c.len;
    source_.kv_head = c.kv_head;
    const int32_t* pages = work_.pages(c);
    const int tiles_per_page = at_.params.tiles_per_page;
    const int tile = source_.token / kKvTileTokens;
    const int page =
        tiles_per_page == 1
            ? tile
            : static_cast<int>(__umulhi(static_cast<unsigned>(tile), at_.params.page_factor));
    source_.tile[0] = tile - page * tiles_per_page;
    const bool same_page = source_.tile[0] + 1 < tiles_per_page;
    const bool has_second = !same_page && source_.token + kKvTileTokens < c.len;
    source_.tile[1] = same_page ? source_.tile[0] + 1 : 0;
    // Two loads, so that nothing waits for the first.
    source_.page[0] = pages[page];
    source_.page[1] = pages[has_second ? page + 1 : page];
  }

  // Those tiles of the leaf that were cached before the step, or the others.
  __device__ void copy(const AttnSource& source, int slot, bool of_values, int n_cached,
                       bool cached) const {
    if (!source.is_live) return;
    const unsigned to = at_.address + at_.slot(at_.stream, slot);
    const std::byte* cache = of_values ? at_.params.kv.v : at_.params.kv.k;
#pragma unroll
    for (int i = 0; i < L::kLeafTiles; ++i) {
      const int64_t head = int64_t{source.page[i]} * at_.params.n_kv_heads + source.kv_head;
      const std::byte* from =
          cache + (head * at_.params.tiles_per_page + source.tile[i]) * L::kTileBytes;
      const int first = source.token + i * kKvTileTokens;
      if ((first + kKvTileTokens <= n_cached) == cached) {
        copy_tile(to + i * L::kTileBytes, from, of_values, source.len - first);
      } else if (first < n_cached && cached) {
        for (unsigned line = thread(); line * 128 < L::kTileBytes; line += L::kStreamThreads)
          attn_prefetch_l2(from + line * 128);
      }
    }
  }
  // V past the end becomes zeros: a weight of 0 times NaN is NaN.
  __device__ void copy_tile(unsigned to, const std::byte* from, bool of_values, int left) const {
    constexpr unsigned kChunks = L::kTileBytes / 16;
    from += thread() * 16;
    if (left >= kKvTileTokens || (!of_values && left > 0)) {
#pragma unroll
      for (unsigned first = 0; first < kChunks; first += L::kStreamThreads) {
        if (kChunks - first < L::kStreamThreads && first + thread() >= kChunks) break;
        attn_copy_async(to + place(of_values, first) * 16, from + first * 16);
      }
    } else if (of_values) {
      if (left <= 0) from = at_.params.kv.v;  // not read
#pragma unroll 1
      for (unsigned first = 0; first + thread() < kChunks; first += L::kStreamThreads) {
        const int token = static_cast<int>((first + thread()) / AttnSwizzle<L>::kRowChunks);
        attn_copy_async(to + place(of_values, first) * 16, left > 0 ? from + first * 16 : from,
                        left > 0 && (token < left || token >= kKvTileTokens));
      }
    }
  }
  // Of the thread's chunk among those from `first` on; the scales of codes lie behind them.
  __device__ unsigned place(bool of_values, unsigned first) const {
    using Swizzle = AttnSwizzle<L>;
    const unsigned chunk = first + thread();
    if (L::kCodes && chunk >= L::kScaleOffset / 16) return chunk;
    static_assert(L::kStreamThreads % 32 == 0);
    return of_values ? Swizzle::value(chunk / Swizzle::kRowChunks, chunk % Swizzle::kRowChunks)
                     : first + Swizzle::key(thread());
  }
  __device__ unsigned thread() const { return at_.tile * 32 + at_.lane; }  // of the stream

  const AttnThread<L> at_;
  const AttnWork<L> work_;  // a copy: a reference would keep the object in memory
  AttnCursor next_;         // to be copied
  AttnSource source_, late_;
  int filled_, late_slot_, late_cached_;
};

}  // namespace fathom::cuda

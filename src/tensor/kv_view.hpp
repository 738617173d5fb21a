// SPDX-License-Identifier: Apache-2.0
// The KV cache of one layer as kernels see it: the one place that knows its layout.
//
// A page holds page_tokens tokens (a multiple of 16) of one sequence; a contiguous cache is one
// page per sequence. Inside a page each KV head has page_tokens/16 tiles of 16 tokens:
//
//   K tile [head_dim][16 tokens]: a score is one multiply-add per dim, with tokens in lanes
//   V tile [16 tokens][head_dim]: an output is one multiply-add per token, with dims in lanes
//
// q8_0 stores int8 codes in this order, then f16 scales [head_dim/32][16 tokens], K and V alike;
// fp8_e4m3 stores E4M3 codes (tensor/e4m3.hpp), then f32 scales [16 tokens].
//
// Of 32 values x of q8_0 the scale is f16(max|x| / 127) and a code the nearest to x / scale,
// rint(x * (1 / scale)) in f32, within -127..127: nearest for the scale as stored. (ggml takes
// 1 / scale before the rounding to f16, which adds up to 127 * 2^-11 of a step, and far more where
// the f16 is subnormal.) A scale of zero has codes of zero; a block with a value that is not
// finite, or too large for the scale, has the scale NaN (0x7e00) and codes of zero.
//
// Of a token's head in fp8_e4m3 the scale is max|x| / 448 in f32 and a code that of x / scale,
// divided in f32: the largest value gets the largest code. A scale of zero has codes of zero; a
// head with a value that is not finite has the scale NaN (0x7fc00000) and codes of zero, so that no
// code of a cache is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

inline constexpr int kKvTileTokens = 16;

enum class KvFormat : int { f32, f16, bf16, q8_0, fp8_e4m3 };
inline constexpr int kKvFormats = 5;

constexpr const char* kv_format_name(KvFormat format) {
  constexpr const char* kNames[kKvFormats] = {"f32", "f16", "bf16", "q8_0", "fp8-e4m3"};
  return kNames[static_cast<int>(format)];
}

// Whether values are codes with scales, so that a head can only be stored as a whole.
FATHOM_HD constexpr bool kv_has_scales(KvFormat format) {
  return format == KvFormat::q8_0 || format == KvFormat::fp8_e4m3;
}

// Bytes of one tile (16 tokens of one KV head) of K, and as many of V.
FATHOM_HD constexpr int64_t kv_tile_bytes(KvFormat format, int head_dim) {
  const int64_t elems = int64_t{kKvTileTokens} * head_dim;
  switch (format) {
    case KvFormat::f32:
      return 4 * elems;
    case KvFormat::f16:
    case KvFormat::bf16:
      return 2 * elems;
    case KvFormat::q8_0:
      return elems + elems / 32 * 2;
    case KvFormat::fp8_e4m3:
      return elems + kKvTileTokens * 4;
  }
  return 0;
}

struct KvGeometry {
  KvFormat format;
  int n_kv_heads;
  int head_dim;
  int page_tokens;  // multiple of 16

  FATHOM_HD constexpr int64_t tile_bytes() const { return kv_tile_bytes(format, head_dim); }
  FATHOM_HD constexpr int64_t head_bytes() const {  // one head of one page
    return page_tokens / kKvTileTokens * tile_bytes();
  }
  FATHOM_HD constexpr int64_t page_bytes() const { return n_kv_heads * head_bytes(); }
  // K and V of one token, all heads.
  FATHOM_HD constexpr int64_t token_bytes() const {
    return 2 * n_kv_heads * tile_bytes() / kKvTileTokens;
  }
};

struct KvLayerView {
  KvGeometry geometry;
  std::byte* k;  // [n_pages][n_kv_heads][page_tokens/16] K tiles
  std::byte* v;  // [n_pages][n_kv_heads][page_tokens/16] V tiles

  // Byte offset of the tile that holds `token` of the sequence whose pages are `pages`.
  FATHOM_HD int64_t tile_offset(const int32_t* pages, int kv_head, int64_t token) const {
    const int64_t page = pages[token / geometry.page_tokens];
    const int64_t tile = token % geometry.page_tokens / kKvTileTokens;
    return page * geometry.page_bytes() + kv_head * geometry.head_bytes() +
           tile * geometry.tile_bytes();
  }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// How each packed format yields 32 values of 8 or 16 rows, and how a row folds them:
//   symmetric   acc += (d_w d_a) * sum(q_w q_a)                   integer sum, one fused add
//   affine      then acc += m_w * (d_a sum(q_a))
//   two-scale   integer sum weighted by the two sub-scales of a 32-value block first
// The integer part is exact, the float part is the same few fused operations in block order on
// every instruction set and for every number of activation rows: that is what makes bits equal.
#pragma once

#include <bit>

#include "kernels/common/act_block.hpp"
#include "kernels/quant/tile_layout.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {

// Loads of a field at `offset` for the lanes whose first row is row0.
template <class V>
struct Fields {
  const std::byte* tile;
  int row0;

  [[gnu::always_inline]] typename V::I word(int offset, int index) const {
    return V::load_i32(tile + offset + 4 * (index * kTileRows + row0));
  }
  [[gnu::always_inline]] typename V::F half(int offset) const {
    return V::load_f16(reinterpret_cast<const uint16_t*>(tile + offset) + row0);
  }
  [[gnu::always_inline]] typename V::I unsigned_byte(int offset, int plane) const {
    return V::load_u8(reinterpret_cast<const uint8_t*>(tile + offset) + plane * kTileRows + row0);
  }
  [[gnu::always_inline]] typename V::I signed_byte(int offset, int plane) const {
    return V::load_i8(reinterpret_cast<const int8_t*>(tile + offset) + plane * kTileRows + row0);
  }
};

template <class V>
[[gnu::always_inline]] inline void unpack_nibbles(const Fields<V>& f, int offset,
                                                  typename V::I* words) {
  const auto mask = V::set1_i32(0x0f0f0f0f);
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w) {
    const auto packed = f.word(offset, w);
    words[w] = V::bit_and(packed, mask);
    words[w + 4] = V::bit_and(V::template shift_right<4>(packed), mask);
  }
}

// Adds 1-bit codes above kBit low bits: word w of the block is bit w of every byte.
template <class V, int kBit>
[[gnu::always_inline]] inline void add_high_bits(const Fields<V>& f, int offset,
                                                 typename V::I* words) {
  const auto high = f.word(offset, 0);
  const auto mask = V::set1_i32(0x01010101 << kBit);
  auto add = [&](int w, auto shifted) {
    words[w] = V::bit_or(words[w], V::bit_and(shifted, mask));
  };
  auto at = [&]<int kWord>() {
    if constexpr (kWord <= kBit) {
      add(kWord, V::template shift_left<kBit - kWord>(high));
    } else {
      add(kWord, V::template shift_right<kWord - kBit>(high));
    }
  };
  at.template operator()<0>();
  at.template operator()<1>();
  at.template operator()<2>();
  at.template operator()<3>();
  at.template operator()<4>();
  at.template operator()<5>();
  at.template operator()<6>();
  at.template operator()<7>();
}

// 2-bit codes at bit kBit of every byte of out[w].
template <class V, int kBit>
[[gnu::always_inline]] inline void unpack_crumbs(const Fields<V>& f, int offset,
                                                 typename V::I* out) {
  const auto mask = V::set1_i32(0x03030303 << kBit);
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const auto packed = f.word(offset, g);
    auto at = [&]<int kIndex>() {
      if constexpr (2 * kIndex <= kBit) {
        out[4 * g + kIndex] = V::bit_and(V::template shift_left<kBit - 2 * kIndex>(packed), mask);
      } else {
        out[4 * g + kIndex] = V::bit_and(V::template shift_right<2 * kIndex - kBit>(packed), mask);
      }
    };
    at.template operator()<0>();
    at.template operator()<1>();
    at.template operator()<2>();
    at.template operator()<3>();
  }
}

// A block with one scale: codes up to kMaxU that stand kOffset (a power of two) above their values.
template <class V, int kMaxU, int kOffset>
struct SymmetricBlock {
  typename V::I words[8];
  typename V::F d;

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto start =
        V::template shift_left<std::countr_zero(unsigned{kOffset})>(V::set1_i32(a.minus_sum));
    const auto sum = V::template dot_u8<kMaxU, 8>(start, words, a.q);
    return V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
  }
};

template <class V>
struct SignedBlock {
  typename V::I words[8];
  typename V::F d;

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum = V::template dot_s8<8>(words, a.q, a.minus_sum);
    return V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
  }
};

// w = d q + m
template <class V, int kMaxU>
struct AffineBlock {
  typename V::I words[8];
  typename V::F d, m;

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum = V::template dot_u8<kMaxU, 8>(V::set1_i32(0), words, a.q);
    acc = V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
    return V::fma(m, V::set1(a.d_sum), acc);
  }
};

// w = d s (q - kOffset), s one of two integer scales.
template <class V, int kMaxU, int kOffset>
struct TwoScaleBlock {
  typename V::I words[8];
  typename V::F d;
  typename V::Scales scales;

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum = V::template dot_scaled<kMaxU, kOffset>(words, a, scales);
    return V::fma(V::mul(d, V::set1(a.d)), sum, acc);
  }
};

// w = d s q - dmin m, s and m each one of two integers.
template <class V>
struct TwoScaleMinBlock {
  typename V::I words[8];
  typename V::F d, dmin;
  typename V::Scales scales;
  typename V::I min0, min1;

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto d_a = V::set1(a.d);
    acc = V::fma(V::mul(d, d_a), V::template dot_scaled<3, 0>(words, a, scales), acc);
    return V::fma(V::mul(dmin, d_a), V::dot_mins(min0, min1, a), acc);
  }
};

template <class V>
struct FormatQ4_0 {
  using Tile = TileQ4_0;
  using Block = SymmetricBlock<V, 15, 8>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants, b.words);
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
struct FormatQ4_1 {
  using Tile = TileQ4_1;
  using Block = AffineBlock<V, 15>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants, b.words);
    b.d = f.half(Tile::kD);
    b.m = f.half(Tile::kM);
    return b;
  }
};

template <class V>
struct FormatQ5_0 {
  using Tile = TileQ5_0;
  using Block = SymmetricBlock<V, 31, 16>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants, b.words);
    add_high_bits<V, 4>(f, Tile::kHigh, b.words);
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
struct FormatQ5_1 {
  using Tile = TileQ5_1;
  using Block = AffineBlock<V, 31>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants, b.words);
    add_high_bits<V, 4>(f, Tile::kHigh, b.words);
    b.d = f.half(Tile::kD);
    b.m = f.half(Tile::kM);
    return b;
  }
};

template <class V>
struct FormatQ8_0 {
  using Tile = TileQ8_0;
  using Block = SignedBlock<V>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) b.words[w] = V::prepare_s8(f.word(Tile::kQuants, w));
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
[[gnu::always_inline]] inline void unpack_codes(const Fields<V>& f, int offset, const int8_t* table,
                                                typename V::I* words) {
  unpack_nibbles(f, offset, words);
#pragma GCC unroll 8
  for (int w = 0; w < 8; ++w) words[w] = V::prepare_s8(V::lookup16(table, words[w]));
}

template <class V>
struct FormatIQ4_NL {
  using Tile = TileIQ4_NL;
  using Block = SignedBlock<V>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_codes(f, Tile::kQuants, kIq4Values, b.words);
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
struct FormatMXFP4 {
  using Tile = TileMXFP4;
  using Block = SignedBlock<V>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_codes(f, Tile::kQuants, kMxfp4Values, b.words);
    // 2^(e-128): exponent field e-1, or the subnormals 2^-128 and 2^-127 for e = 0 and 1.
    const auto e = f.unsigned_byte(Tile::kE, 0);
    const auto normal = V::template shift_left<23>(V::sub_i32(e, V::set1_i32(1)));
    const auto subnormal = V::template shift_left<21>(V::add_i32(e, V::set1_i32(1)));
    b.d = V::as_f32(V::max_i32(normal, subnormal));
    return b;
  }
};

template <class V>
struct FormatQ2_K {
  using Tile = TileQ2_K;
  using Block = TwoScaleMinBlock<V>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_crumbs<V, 0>(f, Tile::kQuants + kSub * kCrumbBytes, b.words);
    b.d = f.half(Tile::kD);
    b.dmin = f.half(Tile::kDmin);
    const auto low = V::set1_i32(15);
    const auto first = f.unsigned_byte(Tile::kScales, 2 * kSub);
    const auto second = f.unsigned_byte(Tile::kScales, 2 * kSub + 1);
    b.scales = V::template scales<0>(V::bit_and(first, low), V::bit_and(second, low));
    b.min0 = V::template shift_right<4>(first);
    b.min1 = V::template shift_right<4>(second);
    return b;
  }
};

template <class V>
struct FormatQ3_K {
  using Tile = TileQ3_K;
  using Block = TwoScaleBlock<V, 7, 4>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_crumbs<V, 0>(f, Tile::kQuants + kSub * kCrumbBytes, b.words);
    add_high_bits<V, 2>(f, Tile::kHigh + kSub * kHighBytes, b.words);
    b.d = f.half(Tile::kD);
    b.scales = V::template scales<4>(f.signed_byte(Tile::kScales, 2 * kSub),
                                     f.signed_byte(Tile::kScales, 2 * kSub + 1));
    return b;
  }
};

// Scale and min of sub-block kSub of Q4_K and Q5_K (see unpack_scale_min_k4): d s and -dmin m.
template <class V, class Tile, int kSub>
[[gnu::always_inline]] inline void load_scale_min(const Fields<V>& f, typename V::F& d,
                                                  typename V::F& m) {
  auto byte = [&](int i) { return f.unsigned_byte(Tile::kScales, i); };
  typename V::I scale, min;
  if constexpr (kSub < 4) {
    const auto low6 = V::set1_i32(63);
    scale = V::bit_and(byte(kSub), low6);
    min = V::bit_and(byte(kSub + 4), low6);
  } else {
    const auto nibbles = byte(kSub + 4);
    const auto top = V::set1_i32(0x30);
    scale = V::bit_or(V::bit_and(nibbles, V::set1_i32(15)),
                      V::bit_and(V::template shift_right<2>(byte(kSub - 4)), top));
    min = V::bit_or(V::template shift_right<4>(nibbles),
                    V::bit_and(V::template shift_right<2>(byte(kSub)), top));
  }
  d = V::mul(f.half(Tile::kD), V::to_f32(scale));
  m = V::mul(V::sub(V::set1(0.0f), f.half(Tile::kDmin)), V::to_f32(min));
}

template <class V>
struct FormatQ4_K {
  using Tile = TileQ4_K;
  using Block = AffineBlock<V, 15>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants + kSub * kNibbleBytes, b.words);
    load_scale_min<V, Tile, kSub>(f, b.d, b.m);
    return b;
  }
};

template <class V>
struct FormatQ5_K {
  using Tile = TileQ5_K;
  using Block = AffineBlock<V, 31>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_nibbles(f, Tile::kQuants + kSub * kNibbleBytes, b.words);
    add_high_bits<V, 4>(f, Tile::kHigh + kSub * kHighBytes, b.words);
    load_scale_min<V, Tile, kSub>(f, b.d, b.m);
    return b;
  }
};

template <class V>
struct FormatQ6_K {
  using Tile = TileQ6_K;
  using Block = TwoScaleBlock<V, 63, 32>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    typename V::I high[8];
    unpack_nibbles(f, Tile::kQuants + kSub * kNibbleBytes, b.words);
    unpack_crumbs<V, 4>(f, Tile::kCrumbs + kSub * kCrumbBytes, high);
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) b.words[w] = V::bit_or(b.words[w], high[w]);
    b.d = f.half(Tile::kD);
    b.scales = V::template scales<32>(f.signed_byte(Tile::kScales, 2 * kSub),
                                      f.signed_byte(Tile::kScales, 2 * kSub + 1));
    return b;
  }
};

template <class V>
struct FormatIQ4_XS {
  using Tile = TileIQ4_XS;
  using Block = SignedBlock<V>;
  template <int kSub>
  [[gnu::always_inline]] static Block load(const Fields<V>& f) {
    Block b;
    unpack_codes(f, Tile::kQuants + kSub * kNibbleBytes, kIq4Values, b.words);
    b.d = V::mul(f.half(Tile::kD), V::to_f32(f.signed_byte(Tile::kScales, kSub)));
    return b;
  }
};

// Float weights: kElems consecutive columns are kElems consecutive tiles.
template <class V>
struct FormatF32 {
  static constexpr int kBytes = TileF32::kBytes;
  [[gnu::always_inline]] static typename V::F load(const std::byte* tile, int row0) {
    return V::load(reinterpret_cast<const float*>(tile) + row0);
  }
};
template <class V>
struct FormatF16 {
  static constexpr int kBytes = TileF16::kBytes;
  [[gnu::always_inline]] static typename V::F load(const std::byte* tile, int row0) {
    return V::load_f16(reinterpret_cast<const uint16_t*>(tile) + row0);
  }
};
template <class V>
struct FormatBF16 {
  static constexpr int kBytes = TileF16::kBytes;
  [[gnu::always_inline]] static typename V::F load(const std::byte* tile, int row0) {
    return V::load_bf16(reinterpret_cast<const uint16_t*>(tile) + row0);
  }
};

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// How each packed format yields 32 values of 8 or 16 rows, and how a row folds them:
//   symmetric   acc += (d_w d_a) * sum(q_w q_a)                   integer sum, one fused add
//   affine      then acc += m_w * (d_a sum(q_a))
//   two-scale   integer sum weighted by the two sub-scales of a 32-value block first
// The integer part is exact, the float part is the same few fused operations in block order on
// every instruction set and for every number of activation rows: that is what makes bits equal.
#pragma once

#include "kernels/common/act_block.hpp"
#include "kernels/quant/tile_layout.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {

// Loads of a field at `offset` for the lanes whose first row is row0.
template <class V>
struct Fields {
  const std::byte* tile;
  int row0;

  typename V::I word(int offset, int index) const {
    return V::load_i32(tile + offset + 4 * (index * kTileRows + row0));
  }
  typename V::F half(int offset) const {
    return V::load_f16(reinterpret_cast<const uint16_t*>(tile + offset) + row0);
  }
  typename V::I unsigned_byte(int offset, int plane) const {
    return V::load_u8(reinterpret_cast<const uint8_t*>(tile + offset) + plane * kTileRows + row0);
  }
  typename V::I signed_byte(int offset, int plane) const {
    return V::load_i8(reinterpret_cast<const int8_t*>(tile + offset) + plane * kTileRows + row0);
  }
};

template <class V>
void unpack_nibbles(const Fields<V>& f, int offset, typename V::I* words) {
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
void add_high_bits(const Fields<V>& f, int offset, typename V::I* words) {
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
void unpack_crumbs(const Fields<V>& f, int offset, typename V::I* out) {
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

// A block with one scale: q unsigned up to kMaxU, `offset` taken off through the activation sum.
template <class V, int kMaxU, int kOffset>
struct SymmetricBlock {
  typename V::I words[8];
  typename V::F d;

  typename V::F fold(typename V::F acc, const ActBlock& a) const {
    auto sum = V::template dot_u8<kMaxU, 8>(words, a.q);
    if constexpr (kOffset != 0) {
      sum = V::sub_i32(sum, V::set1_i32(kOffset * (a.sum[0] + a.sum[1])));
    }
    return V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
  }
};

template <class V>
struct SignedBlock {
  typename V::I words[8];
  typename V::F d;

  typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum = V::template dot_s8<8>(words, a.q, a.sum[0] + a.sum[1]);
    return V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
  }
};

// w = d q + m
template <class V, int kMaxU>
struct AffineBlock {
  typename V::I words[8];
  typename V::F d, m;

  typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum = V::template dot_u8<kMaxU, 8>(words, a.q);
    acc = V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
    return V::fma(m, V::set1(a.d_sum), acc);
  }
};

// w = d s (q - kOffset), s one of two integer scales.
template <class V, int kMaxU, int kOffset>
struct TwoScaleBlock {
  typename V::I words[8];
  typename V::F d;
  typename V::I scale0, scale1;

  typename V::F fold(typename V::F acc, const ActBlock& a) const {
    auto sum0 = V::template dot_u8<kMaxU, 4>(words, a.q);
    auto sum1 = V::template dot_u8<kMaxU, 4>(words + 4, a.q + 16);
    sum0 = V::sub_i32(sum0, V::set1_i32(kOffset * a.sum[0]));
    sum1 = V::sub_i32(sum1, V::set1_i32(kOffset * a.sum[1]));
    const auto sum = V::add_i32(V::mul_i32(sum0, scale0), V::mul_i32(sum1, scale1));
    return V::fma(V::mul(d, V::set1(a.d)), V::to_f32(sum), acc);
  }
};

// w = d s q - dmin m, s and m each one of two integers.
template <class V>
struct TwoScaleMinBlock {
  typename V::I words[8];
  typename V::F d, minus_dmin;
  typename V::I scale0, scale1, min0, min1;

  typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto sum0 = V::template dot_u8<3, 4>(words, a.q);
    const auto sum1 = V::template dot_u8<3, 4>(words + 4, a.q + 16);
    const auto sum = V::add_i32(V::mul_i32(sum0, scale0), V::mul_i32(sum1, scale1));
    const auto min = V::add_i32(V::mul_i32(min0, V::set1_i32(a.sum[0])),
                                V::mul_i32(min1, V::set1_i32(a.sum[1])));
    const auto d_a = V::set1(a.d);
    acc = V::fma(V::mul(d, d_a), V::to_f32(sum), acc);
    return V::fma(V::mul(minus_dmin, d_a), V::to_f32(min), acc);
  }
};

template <class V>
struct FormatQ4_0 {
  using Tile = TileQ4_0;
  using Block = SymmetricBlock<V, 15, 8>;
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int) {
    Block b;
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) b.words[w] = V::prepare_s8(f.word(Tile::kQuants, w));
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
void unpack_codes(const Fields<V>& f, int offset, const int8_t* table, typename V::I* words) {
  unpack_nibbles(f, offset, words);
#pragma GCC unroll 8
  for (int w = 0; w < 8; ++w) words[w] = V::prepare_s8(V::lookup16(table, words[w]));
}

template <class V>
struct FormatIQ4_NL {
  using Tile = TileIQ4_NL;
  using Block = SignedBlock<V>;
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int) {
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
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    unpack_crumbs<V, 0>(f, Tile::kQuants + sub * kCrumbBytes, b.words);
    b.d = f.half(Tile::kD);
    b.minus_dmin = V::sub(V::set1(0.0f), f.half(Tile::kDmin));
    const auto low = V::set1_i32(15);
    const auto first = f.unsigned_byte(Tile::kScales, 2 * sub);
    const auto second = f.unsigned_byte(Tile::kScales, 2 * sub + 1);
    b.scale0 = V::bit_and(first, low);
    b.scale1 = V::bit_and(second, low);
    b.min0 = V::template shift_right<4>(first);
    b.min1 = V::template shift_right<4>(second);
    return b;
  }
};

template <class V>
struct FormatQ3_K {
  using Tile = TileQ3_K;
  using Block = TwoScaleBlock<V, 7, 4>;
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    unpack_crumbs<V, 0>(f, Tile::kQuants + sub * kCrumbBytes, b.words);
    add_high_bits<V, 2>(f, Tile::kHigh + sub * kHighBytes, b.words);
    b.d = f.half(Tile::kD);
    b.scale0 = f.signed_byte(Tile::kScales, 2 * sub);
    b.scale1 = f.signed_byte(Tile::kScales, 2 * sub + 1);
    return b;
  }
};

// Scale and min of sub-block `sub` of Q4_K and Q5_K (see unpack_scale_min_k4): d s and -dmin m.
template <class V, class Tile>
void load_scale_min(const Fields<V>& f, int sub, typename V::F& d, typename V::F& m) {
  auto byte = [&](int i) { return f.unsigned_byte(Tile::kScales, i); };
  typename V::I scale, min;
  if (sub < 4) {
    const auto low6 = V::set1_i32(63);
    scale = V::bit_and(byte(sub), low6);
    min = V::bit_and(byte(sub + 4), low6);
  } else {
    const auto nibbles = byte(sub + 4);
    const auto top = V::set1_i32(0x30);
    scale = V::bit_or(V::bit_and(nibbles, V::set1_i32(15)),
                      V::bit_and(V::template shift_right<2>(byte(sub - 4)), top));
    min = V::bit_or(V::template shift_right<4>(nibbles),
                    V::bit_and(V::template shift_right<2>(byte(sub)), top));
  }
  d = V::mul(f.half(Tile::kD), V::to_f32(scale));
  m = V::mul(V::sub(V::set1(0.0f), f.half(Tile::kDmin)), V::to_f32(min));
}

template <class V>
struct FormatQ4_K {
  using Tile = TileQ4_K;
  using Block = AffineBlock<V, 15>;
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    unpack_nibbles(f, Tile::kQuants + sub * kNibbleBytes, b.words);
    load_scale_min<V, Tile>(f, sub, b.d, b.m);
    return b;
  }
};

template <class V>
struct FormatQ5_K {
  using Tile = TileQ5_K;
  using Block = AffineBlock<V, 31>;
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    unpack_nibbles(f, Tile::kQuants + sub * kNibbleBytes, b.words);
    add_high_bits<V, 4>(f, Tile::kHigh + sub * kHighBytes, b.words);
    load_scale_min<V, Tile>(f, sub, b.d, b.m);
    return b;
  }
};

template <class V>
struct FormatQ6_K {
  using Tile = TileQ6_K;
  using Block = TwoScaleBlock<V, 63, 32>;
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    typename V::I high[8];
    unpack_nibbles(f, Tile::kQuants + sub * kNibbleBytes, b.words);
    unpack_crumbs<V, 4>(f, Tile::kCrumbs + sub * kCrumbBytes, high);
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) b.words[w] = V::bit_or(b.words[w], high[w]);
    b.d = f.half(Tile::kD);
    b.scale0 = f.signed_byte(Tile::kScales, 2 * sub);
    b.scale1 = f.signed_byte(Tile::kScales, 2 * sub + 1);
    return b;
  }
};

template <class V>
struct FormatIQ4_XS {
  using Tile = TileIQ4_XS;
  using Block = SignedBlock<V>;
  static Block load(const Fields<V>& f, int sub) {
    Block b;
    unpack_codes(f, Tile::kQuants + sub * kNibbleBytes, kIq4Values, b.words);
    b.d = V::mul(f.half(Tile::kD), V::to_f32(f.signed_byte(Tile::kScales, sub)));
    return b;
  }
};

// Float weights: kElems consecutive columns are kElems consecutive tiles.
template <class V>
struct FormatF32 {
  static constexpr int kBytes = TileF32::kBytes;
  static typename V::F load(const std::byte* tile, int row0) {
    return V::load(reinterpret_cast<const float*>(tile) + row0);
  }
};
template <class V>
struct FormatF16 {
  static constexpr int kBytes = TileF16::kBytes;
  static typename V::F load(const std::byte* tile, int row0) {
    return V::load_f16(reinterpret_cast<const uint16_t*>(tile) + row0);
  }
};
template <class V>
struct FormatBF16 {
  static constexpr int kBytes = TileF16::kBytes;
  static typename V::F load(const std::byte* tile, int row0) {
    return V::load_bf16(reinterpret_cast<const uint16_t*>(tile) + row0);
  }
};

}  // namespace fathom::quant

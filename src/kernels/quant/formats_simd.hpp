// SPDX-License-Identifier: Apache-2.0
// How each packed format yields 32 values of 8 or 16 rows, and how a row folds them:
//   symmetric   acc += (d_w d_a) * sum(q_w q_a)                   integer sum, one fused add
//   affine      then acc += m_w * (d_a sum(q_a))
//   two-scale   integer sum weighted by the two sub-scales of a 32-value block first
// The integer part is exact, the float part is the same few fused operations in block order on
// every instruction set and for every number of activation rows: that is what makes bits equal.
#pragma once

#include <array>
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
  // Two bytes a row, each widened to 16 bits.
  [[gnu::always_inline]] typename V::I unsigned_pair(int offset, int index) const {
    return V::load_u8x2(reinterpret_cast<const uint8_t*>(tile + offset) + index * kPairBytes +
                        2 * row0);
  }
  [[gnu::always_inline]] typename V::I signed_pair(int offset, int index) const {
    return V::load_i8x2(reinterpret_cast<const int8_t*>(tile + offset) + index * kPairBytes +
                        2 * row0);
  }
};

// Bits [from, from + bits) of every byte, moved to bit `to`.
template <class V, int kFrom, int kCount, int kTo>
[[gnu::always_inline]] inline typename V::I bits_to(typename V::I x) {
  const auto mask = V::set1_i32(static_cast<int32_t>(((1u << kCount) - 1) * 0x01010101u << kTo));
  if constexpr (kFrom == kTo) {
    return V::bit_and(x, mask);
  } else if constexpr (kFrom > kTo) {
    return V::bit_and(V::template shift_right<kFrom - kTo>(x), mask);
  } else {
    return V::bit_and(V::template shift_left<kTo - kFrom>(x), mask);
  }
}

// The codes of 32 values as eight words (tile_layout.hpp).
template <class V, int kBits>
[[gnu::always_inline]] inline void unpack(const Fields<V>& f, int offset, typename V::I* words) {
  using I = typename V::I;
  if constexpr (kBits == 2) {
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const I packed = f.word(offset, g);
      words[4 * g] = bits_to<V, 0, 2, 0>(packed);
      words[4 * g + 1] = bits_to<V, 2, 2, 0>(packed);
      words[4 * g + 2] = bits_to<V, 4, 2, 0>(packed);
      words[4 * g + 3] = bits_to<V, 6, 2, 0>(packed);
    }
  } else if constexpr (kBits == 3) {
    const I packed[3] = {f.word(offset, 0), f.word(offset, 1), f.word(offset, 2)};
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      words[2 * i] = bits_to<V, 0, 3, 0>(packed[i]);
      words[2 * i + 1] = bits_to<V, 3, 3, 0>(packed[i]);
    }
    words[6] = V::bit_or(bits_to<V, 6, 2, 0>(packed[0]), bits_to<V, 6, 1, 2>(packed[1]));
    words[7] = V::bit_or(bits_to<V, 7, 1, 0>(packed[1]), bits_to<V, 6, 2, 1>(packed[2]));
  } else if constexpr (kBits == 4) {
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      const I packed = f.word(offset, w);
      words[w] = bits_to<V, 0, 4, 0>(packed);
      words[w + 4] = bits_to<V, 4, 4, 0>(packed);
    }
  } else if constexpr (kBits == 5) {
    I packed[5];
#pragma GCC unroll 5
    for (int i = 0; i < 5; ++i) {
      packed[i] = f.word(offset, i);
      words[i] = bits_to<V, 0, 5, 0>(packed[i]);
    }
    words[5] = V::bit_or(bits_to<V, 5, 3, 0>(packed[0]), bits_to<V, 5, 2, 3>(packed[3]));
    words[6] = V::bit_or(bits_to<V, 5, 3, 0>(packed[1]), bits_to<V, 5, 2, 3>(packed[4]));
    words[7] = V::bit_or(bits_to<V, 5, 3, 0>(packed[2]),
                         V::bit_or(bits_to<V, 7, 1, 3>(packed[3]), bits_to<V, 7, 1, 4>(packed[4])));
  } else if constexpr (kBits == 6) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      I packed[3];
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        packed[i] = f.word(offset, 3 * h + i);
        words[4 * h + i] = bits_to<V, 0, 6, 0>(packed[i]);
      }
      words[4 * h + 3] =
          V::bit_or(bits_to<V, 6, 2, 0>(packed[0]),
                    V::bit_or(bits_to<V, 6, 2, 2>(packed[1]), bits_to<V, 6, 2, 4>(packed[2])));
    }
  } else {
    static_assert(kBits == 8);
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) words[w] = f.word(offset, w);
  }
}

template <class V, class Tile>
[[gnu::always_inline]] inline void unpack_sub(const Fields<V>& f, int sub, typename V::I* words) {
  unpack<V, Tile::kBits>(f, Tile::kCodes + sub * code_bytes(Tile::kBits), words);
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
template <class V, int kMaxU>
struct TwoScaleMinBlock {
  typename V::I words[8];
  typename V::F d, dmin;
  typename V::Scales scales;
  typename V::I mins;  // two in 16 bits a lane

  [[gnu::always_inline]] typename V::F fold(typename V::F acc, const ActBlock& a) const {
    const auto d_a = V::set1(a.d);
    acc = V::fma(V::mul(d, d_a), V::template dot_scaled<kMaxU, 0>(words, a, scales), acc);
    return V::fma(V::mul(dmin, d_a), V::dot_mins(mins, a), acc);
  }
};

// Formats: load<kOdd>(fields, pair) gives the 32-value block 2 * pair + kOdd of a tile.

template <class V, class TileType, class BlockType>
struct FormatD {
  using Tile = TileType;
  using Block = BlockType;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int) {
    Block b;
    unpack_sub<V, Tile>(f, 0, b.words);
    b.d = f.half(Tile::kD);
    if constexpr (requires { Tile::kM; }) b.m = f.half(Tile::kM);
    return b;
  }
};
template <class V>
using FormatQ4_0 = FormatD<V, TileQ4_0, SymmetricBlock<V, 15, 8>>;
template <class V>
using FormatQ4_1 = FormatD<V, TileQ4_1, AffineBlock<V, 15>>;
template <class V>
using FormatQ5_0 = FormatD<V, TileQ5_0, SymmetricBlock<V, 31, 16>>;
template <class V>
using FormatQ5_1 = FormatD<V, TileQ5_1, AffineBlock<V, 31>>;

template <class V>
[[gnu::always_inline]] inline void prepare_signed(typename V::I* words) {
#pragma GCC unroll 8
  for (int w = 0; w < 8; ++w) words[w] = V::prepare_s8(words[w]);
}

template <class V>
[[gnu::always_inline]] inline void lookup(const int8_t* table, typename V::I* words) {
#pragma GCC unroll 8
  for (int w = 0; w < 8; ++w) words[w] = V::lookup16(table, words[w]);
}

template <class V>
struct FormatQ8_0 {
  using Tile = TileQ8_0;
  using Block = SignedBlock<V>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int) {
    Block b;
    unpack_sub<V, Tile>(f, 0, b.words);
    prepare_signed<V>(b.words);
    b.d = f.half(Tile::kD);
    return b;
  }
};

template <class V>
struct FormatIQ4_NL {
  using Tile = TileIQ4_NL;
  using Block = SignedBlock<V>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int) {
    Block b;
    unpack_sub<V, Tile>(f, 0, b.words);
    lookup<V>(kIq4Values, b.words);
    prepare_signed<V>(b.words);
    b.d = f.half(Tile::kD);
    return b;
  }
};

// Codes 16 above the values, so that no sign has to be moved.
inline constexpr auto kMxfp4Codes = [] {
  std::array<int8_t, 16> out{};
  for (size_t i = 0; i < 16; ++i) out[i] = static_cast<int8_t>(kMxfp4Values[i] + 16);
  return out;
}();

template <class V>
struct FormatMXFP4 {
  using Tile = TileMXFP4;
  using Block = SymmetricBlock<V, 28, 16>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int) {
    Block b;
    unpack_sub<V, Tile>(f, 0, b.words);
    lookup<V>(kMxfp4Codes.data(), b.words);
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
  using Block = TwoScaleMinBlock<V, 3>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int pair) {
    const int sub = 2 * pair + kOdd;
    Block b;
    unpack_sub<V, Tile>(f, sub, b.words);
    b.d = f.half(Tile::kD);
    b.dmin = f.half(Tile::kDmin);
    const auto both = f.unsigned_pair(Tile::kScales, sub);
    const auto low = V::set1_i32(0x000f000f);
    b.scales = V::template scales<0>(V::bit_and(both, low));
    b.mins = V::bit_and(V::template shift_right<4>(both), low);
    return b;
  }
};

template <class V, class TileType, int kMaxU, int kOffset>
struct FormatDScales {
  using Tile = TileType;
  using Block = TwoScaleBlock<V, kMaxU, kOffset>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int pair) {
    const int sub = 2 * pair + kOdd;
    Block b;
    unpack_sub<V, Tile>(f, sub, b.words);
    b.d = f.half(Tile::kD);
    b.scales = V::template scales<kOffset>(f.signed_pair(Tile::kScales, sub));
    return b;
  }
};
template <class V>
using FormatQ3_K = FormatDScales<V, TileQ3_K, 7, 4>;
template <class V>
using FormatQ6_K = FormatDScales<V, TileQ6_K, 63, 32>;

template <class V, class TileType, int kMaxU>
struct FormatDMinScales {
  using Tile = TileType;
  using Block = AffineBlock<V, kMaxU>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int pair) {
    Block b;
    unpack_sub<V, Tile>(f, 2 * pair + kOdd, b.words);
    auto plane = [&](int i) { return f.unsigned_byte(Tile::kScales, 3 * pair + i); };
    typename V::I scale, min;
    if constexpr (kOdd == 0) {
      scale = V::bit_and(plane(0), V::set1_i32(63));
      min = V::bit_and(plane(1), V::set1_i32(63));
    } else {
      const auto nibbles = plane(2);
      const auto top = V::set1_i32(0x30);
      scale = V::bit_or(V::bit_and(nibbles, V::set1_i32(15)),
                        V::bit_and(V::template shift_right<2>(plane(0)), top));
      min = V::bit_or(V::template shift_right<4>(nibbles),
                      V::bit_and(V::template shift_right<2>(plane(1)), top));
    }
    b.d = V::mul(f.half(Tile::kD), V::to_f32(scale));
    b.m = V::mul(V::sub(V::set1(0.0f), f.half(Tile::kDmin)), V::to_f32(min));
    return b;
  }
};
template <class V>
using FormatQ4_K = FormatDMinScales<V, TileQ4_K, 15>;
template <class V>
using FormatQ5_K = FormatDMinScales<V, TileQ5_K, 31>;

template <class V>
struct FormatIQ4_XS {
  using Tile = TileIQ4_XS;
  using Block = SignedBlock<V>;
  template <int kOdd>
  [[gnu::always_inline]] static Block load(const Fields<V>& f, int pair) {
    const int sub = 2 * pair + kOdd;
    Block b;
    unpack_sub<V, Tile>(f, sub, b.words);
    lookup<V>(kIq4Values, b.words);
    prepare_signed<V>(b.words);
    b.d = V::mul(f.half(Tile::kD), V::to_f32(f.signed_byte(Tile::kScales, sub)));
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

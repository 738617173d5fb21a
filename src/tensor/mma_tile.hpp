// SPDX-License-Identifier: Apache-2.0
// Weights as tensor cores read them: tiles of 16 rows by 256 columns (128 for 16-bit floats), a
// row group's tiles in column order, row groups in row order. A tile has exactly the bytes of its
// values in the file; missing rows and columns are zeros.
//
// A lane of a warp (g = lane / 4, t = lane % 4) reads what it feeds to mma.m16n8k32 (source: PTX
// ISA, matrix fragments for .s8) with whole-word loads, the warp's words side by side:
//   register r of a block of 32 columns: row g + 8*(r % 2), columns 16*(r / 2) + 4t .. + 3
// Codes, by bits; a pair is two neighbouring blocks:
//   4  [4 pairs][32 lanes][4 words]  word r: the low nibbles are register r of the first block,
//                                    the high ones register r of the second
//   5  the same, then [4 pairs][32 lanes] a word: bit r of byte j is the high bit of byte j of
//                                    register r, r = 4*block + register
//   6  the same, then [4 pairs][32 lanes][2 blocks] words: bits 2r, 2r+1 of byte j likewise
//   8  [8 blocks][32 lanes][4 registers]
// Scales follow; rows g and g + 8 side by side, since a lane needs both:
//   one scale     [8 g][8 blocks][2 rows] f16
//   scale, min    [8 g][8 blocks][d of 2 rows, m of 2 rows] f16
//   Q4_K, Q5_K    [8 g] d of 2 rows, dmin of 2 rows; [8 g][4 pairs] a word: byte
//                 2*row + (block % 2) is the scale, and the high bits of the min above it;
//                 [8 g][4 pairs] 16 bits: the low bits of the four mins, those of bytes 0, 2, 1, 3
//                 from the lowest bit on
//   Q6_K          [8 g][16 groups of 16 columns][2 rows] int8, then [8 g][2 rows] f16
// 16-bit floats: [8 steps of 16 columns][32 lanes][4 registers], register r of mma.m16n8k16:
//   row g + 8*(r % 2), columns 8*(r / 2) + 2t, + 1
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"
#include "tensor/hd.hpp"

namespace fathom::quant {

inline constexpr int kMmaRows = 16;
inline constexpr int kMmaBlock = 32;       // columns of an activation block
inline constexpr int kMmaTileBlocks = 8;   // blocks of a tile of codes
inline constexpr int kMmaTileCols = 256;   // of codes
inline constexpr int kMmaFloatCols = 128;  // of 16-bit floats

struct alignas(16) Words4 {
  uint32_t x[4];
};
struct alignas(8) Words2 {
  uint32_t x[2];
};
struct alignas(8) Halves4 {
  uint16_t x[4];
};

template <class T>
FATHOM_HD inline T load_as(const std::byte* from) {
  return *reinterpret_cast<const T*>(from);
}

template <int kBits>
struct MmaCodes {
  static_assert(kBits == 4 || kBits == 5 || kBits == 6 || kBits == 8);
  static constexpr int kBytes = kMmaRows * kMmaTileCols * kBits / 8;
  static constexpr int kNibbleBytes = kMmaRows * kMmaTileCols / 2;

  // The second block's codes are left 16 times as large: one operation a register less.
  static constexpr int kSecondScale = kBits == 4 ? 16 : 1;

  // Registers of both blocks of a pair for one lane.
  FATHOM_HD static void load(const std::byte* tile, int pair, int lane, uint32_t (&a)[2][4]) {
    const int at = pair * 32 + lane;
    if constexpr (kBits == 8) {
      for (int block = 0; block < 2; ++block) {
        const Words4 w = load_as<Words4>(tile + ((2 * pair + block) * 32 + lane) * 16);
        for (int r = 0; r < 4; ++r) a[block][r] = w.x[r];
      }
      return;
    }
    const Words4 w = load_as<Words4>(tile + at * 16);
    for (int r = 0; r < 4; ++r) {
      a[0][r] = w.x[r] & 0x0f0f0f0fu;
      a[1][r] = kBits == 4 ? w.x[r] & 0xf0f0f0f0u : w.x[r] >> 4 & 0x0f0f0f0fu;
    }
    if constexpr (kBits == 5) {
      const uint32_t high = load_as<uint32_t>(tile + kNibbleBytes + at * 4);
      for (int r = 0; r < 8; ++r) {
        a[r / 4][r % 4] |= (r < 4 ? high << (4 - r) : high >> (r - 4)) & 0x10101010u;
      }
    }
    if constexpr (kBits == 6) {
      const Words2 high = load_as<Words2>(tile + kNibbleBytes + at * 8);
      for (int r = 0; r < 8; ++r) {
        const int shift = 2 * (r % 4);
        a[r / 4][r % 4] |=
            (shift < 4 ? high.x[r / 4] << (4 - shift) : high.x[r / 4] >> (shift - 4)) & 0x30303030u;
      }
    }
  }
};

// How a format's codes become a value:
//   symmetric   w = d * (q - kOffset)
//   affine      w = d * q + m, with d and m of each block
//   affine_k    w = d * scale * q - dmin * min, 6-bit scales and mins of each block
//   two_scale   w = d * scale * (q - kOffset), an int8 scale for each half of a block
//   real        16-bit floats
enum class MmaKind { symmetric, affine, affine_k, two_scale, real };

template <DType type>
struct MmaFormat;
template <int bits, MmaKind kind, int offset, int scale_bytes>
struct MmaFormatOf {
  static constexpr int kBits = bits;
  static constexpr MmaKind kKind = kind;
  static constexpr int kOffset = offset;
  static constexpr int kCodeBytes = kMmaRows * kMmaTileCols * bits / 8;
  static constexpr int kTileBytes = kCodeBytes + scale_bytes;
  static constexpr int kTileCols = kMmaTileCols;
};
template <>
struct MmaFormat<DType::q4_0> : MmaFormatOf<4, MmaKind::symmetric, 8, 256> {};
template <>
struct MmaFormat<DType::q4_1> : MmaFormatOf<4, MmaKind::affine, 0, 512> {};
template <>
struct MmaFormat<DType::q5_0> : MmaFormatOf<5, MmaKind::symmetric, 16, 256> {};
template <>
struct MmaFormat<DType::q5_1> : MmaFormatOf<5, MmaKind::affine, 0, 512> {};
template <>
struct MmaFormat<DType::q8_0> : MmaFormatOf<8, MmaKind::symmetric, 0, 256> {};
template <>
struct MmaFormat<DType::q4_k> : MmaFormatOf<4, MmaKind::affine_k, 0, 256> {};
template <>
struct MmaFormat<DType::q5_k> : MmaFormatOf<5, MmaKind::affine_k, 0, 256> {};
template <>
struct MmaFormat<DType::q6_k> : MmaFormatOf<6, MmaKind::two_scale, 32, 288> {};
struct MmaFormatReal {
  static constexpr int kBits = 16;
  static constexpr MmaKind kKind = MmaKind::real;
  static constexpr int kTileBytes = kMmaRows * kMmaFloatCols * 2;
  static constexpr int kTileCols = kMmaFloatCols;
};
template <>
struct MmaFormat<DType::f16> : MmaFormatReal {};
template <>
struct MmaFormat<DType::bf16> : MmaFormatReal {};

// Calls fn(MmaFormat<type>{}, type as a constant); false when the type has no tile.
template <DType type>
struct TypeConstant {
  static constexpr DType value = type;
};
// In line always: a call would put the caller's register arrays into memory.
template <class Fn>
__attribute__((always_inline)) FATHOM_HD constexpr bool visit_mma_format(DType type, Fn&& fn) {
  switch (type) {
    case DType::f16:
      return fn(TypeConstant<DType::f16>{}), true;
    case DType::bf16:
      return fn(TypeConstant<DType::bf16>{}), true;
    case DType::q4_0:
      return fn(TypeConstant<DType::q4_0>{}), true;
    case DType::q4_1:
      return fn(TypeConstant<DType::q4_1>{}), true;
    case DType::q5_0:
      return fn(TypeConstant<DType::q5_0>{}), true;
    case DType::q5_1:
      return fn(TypeConstant<DType::q5_1>{}), true;
    case DType::q8_0:
      return fn(TypeConstant<DType::q8_0>{}), true;
    case DType::q4_k:
      return fn(TypeConstant<DType::q4_k>{}), true;
    case DType::q5_k:
      return fn(TypeConstant<DType::q5_k>{}), true;
    case DType::q6_k:
      return fn(TypeConstant<DType::q6_k>{}), true;
    default:
      return false;
  }
}

// Scales of rows g and g + 8 for one block, as f16 bits and small integers.
struct MmaScales {
  uint16_t d[2];      // of each row
  uint16_t m[2];      // affine: of each row; affine_k: dmin
  uint8_t scale[2];   // affine_k
  uint8_t min[2];     // affine_k
  int8_t half[2][2];  // two_scale: [half][row]
};

// Scales and mins of a pair of blocks of Q4_K or Q5_K: byte 2*row + (block % 2).
struct MmaPairScales {
  Halves4 d;  // d of rows g and g + 8, dmin of them
  uint32_t scales, mins;
};

template <class Format>
FATHOM_HD inline MmaPairScales load_mma_pair_scales(const std::byte* tile, int g, int pair) {
  const std::byte* at = tile + Format::kCodeBytes;
  const uint32_t word = load_as<uint32_t>(at + 64 + (g * 4 + pair) * 4);
  const uint32_t low = load_as<uint16_t>(at + 192 + (g * 4 + pair) * 2);
  return {load_as<Halves4>(at + g * 8), word & 0x3f3f3f3fu,
          ((low | low << 12) & 0x0f0f0f0fu) | (word >> 2 & 0x30303030u)};
}

template <class Format>
FATHOM_HD inline MmaScales load_mma_scales(const std::byte* tile, int g, int block) {
  const std::byte* at = tile + Format::kCodeBytes;
  MmaScales out{};
  if constexpr (Format::kKind == MmaKind::symmetric) {
    const uint32_t d = load_as<uint32_t>(at + (g * 8 + block) * 4);
    out.d[0] = static_cast<uint16_t>(d);
    out.d[1] = static_cast<uint16_t>(d >> 16);
  } else if constexpr (Format::kKind == MmaKind::affine) {
    const Halves4 h = load_as<Halves4>(at + (g * 8 + block) * 8);
    for (int row = 0; row < 2; ++row) {
      out.d[row] = h.x[row];
      out.m[row] = h.x[2 + row];
    }
  } else if constexpr (Format::kKind == MmaKind::affine_k) {
    const MmaPairScales pair = load_mma_pair_scales<Format>(tile, g, block / 2);
    for (int row = 0; row < 2; ++row) {
      const int shift = 8 * (2 * row + block % 2);
      out.d[row] = pair.d.x[row];
      out.m[row] = pair.d.x[2 + row];
      out.scale[row] = static_cast<uint8_t>(pair.scales >> shift);
      out.min[row] = static_cast<uint8_t>(pair.mins >> shift);
    }
  } else if constexpr (Format::kKind == MmaKind::two_scale) {
    const uint32_t s = load_as<uint32_t>(at + g * 32 + block * 4);
    for (int i = 0; i < 4; ++i) out.half[i / 2][i % 2] = static_cast<int8_t>(s >> 8 * i);
    const uint32_t d = load_as<uint32_t>(at + 256 + g * 4);
    out.d[0] = static_cast<uint16_t>(d);
    out.d[1] = static_cast<uint16_t>(d >> 16);
  }
  return out;
}

// Where byte k of an activation block stands, so that a lane reads both its registers at once:
// register 0 takes columns 4t.., register 1 columns 16 + 4t..
FATHOM_HD constexpr int mma_act_byte(int k) { return 8 * (k % 16 / 4) + 4 * (k / 16) + k % 4; }
// The same of a step of 16 float activations, in units of one value: registers 2t.., 8 + 2t..
FATHOM_HD constexpr int mma_act_half(int k) { return 4 * (k % 8 / 2) + 2 * (k / 8) + k % 2; }

}  // namespace fathom::quant

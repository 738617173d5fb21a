// SPDX-License-Identifier: Apache-2.0
// Packed weights: 16 rows side by side, so that a vector lane is a row and every row folds its
// blocks in order whatever the vector width. A matrix is [rows/16][cols/tile_elems] tiles; the last
// group is padded with zero rows. A tile holds codes, halves ([16 rows] f16), and small scales as
// planes ([n][16 rows] bytes) or pairs ([n][16 rows] two bytes).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace fathom::quant {

inline constexpr int kTileRows = 16;
inline constexpr int kHalfBytes = 2 * kTileRows;
inline constexpr int kPairBytes = 2 * kTileRows;

// Codes: [bits][16 rows] 32-bit words for 32 values of a row. c[w] = the codes of values 4w..4w+3,
// one a byte; shifts stay within the bytes.
//   2 bits  W[g] = c[4g] | c[4g+1] << 2 | c[4g+2] << 4 | c[4g+3] << 6
//   3 bits  W[i] = c[2i] | c[2i+1] << 3; the spare bits 6 and 7 hold c[6] and c[7]
//   4 bits  W[w] = c[w] | c[w+4] << 4
//   5 bits  W[i] = c[i]; the spare bits 5 to 7 hold c[5], c[6] and c[7]
//   6 bits  W[3h+i] = c[4h+i]; the spare bits 6 and 7 hold c[4h+3]
//   8 bits  W[w] = c[w]
constexpr int code_bytes(int bits) { return bits * 4 * kTileRows; }  // of 32 values

// The width of each format's codes, the offsets of the fields of its tile, and its size.
template <int kCodeBits>
struct TileD {  // Q4_0, Q5_0, Q8_0, IQ4_NL
  static constexpr int kElems = 32, kBits = kCodeBits, kCodes = 0, kD = code_bytes(kBits),
                       kBytes = kD + kHalfBytes;
};
template <int kCodeBits>
struct TileDM {  // Q4_1, Q5_1
  static constexpr int kElems = 32, kBits = kCodeBits, kCodes = 0, kD = code_bytes(kBits),
                       kM = kD + kHalfBytes, kBytes = kM + kHalfBytes;
};
using TileQ4_0 = TileD<4>;
using TileQ4_1 = TileDM<4>;
using TileQ5_0 = TileD<5>;
using TileQ5_1 = TileDM<5>;
using TileQ8_0 = TileD<8>;
using TileIQ4_NL = TileD<4>;
struct TileMXFP4 {
  static constexpr int kElems = 32, kBits = 4, kCodes = 0, kE = code_bytes(kBits),
                       kBytes = kE + kTileRows;
};
struct TileQ2_K {  // a pair: two bytes of scale (low nibble) and min (high nibble)
  static constexpr int kElems = 256, kBits = 2, kD = 0, kDmin = kHalfBytes,
                       kScales = 2 * kHalfBytes, kCodes = kScales + 8 * kPairBytes,
                       kBytes = kCodes + 8 * code_bytes(kBits);
};
template <int kCodeBits>
struct TileDScales {  // Q3_K, Q6_K: a pair of signed scales for 32 values
  static constexpr int kElems = 256, kBits = kCodeBits, kD = 0, kScales = kHalfBytes,
                       kCodes = kScales + 8 * kPairBytes, kBytes = kCodes + 8 * code_bytes(kBits);
};
using TileQ3_K = TileDScales<3>;
using TileQ6_K = TileDScales<6>;
// Q4_K, Q5_K: three planes for the 6-bit scales s0, s1 and mins m0, m1 of 64 values:
//   s0 | s1 >> 4 << 6,   m0 | m1 >> 4 << 6,   (s1 & 15) | (m1 & 15) << 4
template <int kCodeBits>
struct TileDMinScales {
  static constexpr int kElems = 256, kBits = kCodeBits, kD = 0, kDmin = kHalfBytes,
                       kScales = 2 * kHalfBytes, kCodes = kScales + 12 * kTileRows,
                       kBytes = kCodes + 8 * code_bytes(kBits);
};
using TileQ4_K = TileDMinScales<4>;
using TileQ5_K = TileDMinScales<5>;
struct TileIQ4_XS {
  static constexpr int kElems = 256, kBits = 4, kD = 0, kScales = kHalfBytes,
                       kCodes = kScales + 8 * kTileRows, kBytes = kCodes + 8 * code_bytes(kBits);
};
struct TileF32 {
  static constexpr int kElems = 1, kBytes = 4 * kTileRows;
};
struct TileF16 {
  static constexpr int kElems = 1, kBytes = 2 * kTileRows;
};

// How a format is packed. `pack` turns one block of each of 16 rows into a tile.
struct TileFormat {
  DType type;
  int tile_elems;
  int tile_bytes;
  void (*pack)(const std::byte* const* rows, std::byte* tile);
};

// The row of a type; every DType has one.
const TileFormat& tile_format(DType type);

}  // namespace fathom::quant

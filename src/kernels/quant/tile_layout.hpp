// SPDX-License-Identifier: Apache-2.0
// Packed weights: 16 rows side by side, so that a vector lane is a row and every row folds its
// blocks in order whatever the vector width. A matrix is [rows/16][cols/tile_elems] tiles; the last
// group is padded with zero rows. Fields of a tile (b = byte of a 32-bit word, w = word 0..7 of a
// 32-value block, so that value 4w+b of the block stands in byte b of word w):
//   nibbles  [4][16 rows] words per 32 values: word w of the low nibbles, word w+4 of the high ones
//   crumbs   [2][16 rows] words per 32 values: 2-bit codes, word 4g+i of the block at bit 2i
//   high     [16 rows] words per 32 values: 1-bit codes, word w of the block at bit w
//   bytes    [8][16 rows] words per 32 values
//   planes   [n][16 rows] bytes: scales;   halves [16 rows] f16
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace fathom::quant {

inline constexpr int kTileRows = 16;
inline constexpr int kNibbleBytes = 4 * 4 * kTileRows;  // per 32 values
inline constexpr int kCrumbBytes = 2 * 4 * kTileRows;
inline constexpr int kHighBytes = 4 * kTileRows;
inline constexpr int kWordBytes = 8 * 4 * kTileRows;
inline constexpr int kHalfBytes = 2 * kTileRows;

// Offsets of the fields of each format's tile, and its size.
struct TileQ4_0 {
  static constexpr int kElems = 32, kQuants = 0, kD = kNibbleBytes, kBytes = kD + kHalfBytes;
};
struct TileQ4_1 {
  static constexpr int kElems = 32, kQuants = 0, kD = kNibbleBytes, kM = kD + kHalfBytes,
                       kBytes = kM + kHalfBytes;
};
struct TileQ5_0 {
  static constexpr int kElems = 32, kQuants = 0, kHigh = kNibbleBytes, kD = kHigh + kHighBytes,
                       kBytes = kD + kHalfBytes;
};
struct TileQ5_1 {
  static constexpr int kElems = 32, kQuants = 0, kHigh = kNibbleBytes, kD = kHigh + kHighBytes,
                       kM = kD + kHalfBytes, kBytes = kM + kHalfBytes;
};
struct TileQ8_0 {
  static constexpr int kElems = 32, kQuants = 0, kD = kWordBytes, kBytes = kD + kHalfBytes;
};
struct TileIQ4_NL {
  static constexpr int kElems = 32, kQuants = 0, kD = kNibbleBytes, kBytes = kD + kHalfBytes;
};
struct TileMXFP4 {
  static constexpr int kElems = 32, kQuants = 0, kE = kNibbleBytes, kBytes = kE + kTileRows;
};
struct TileQ2_K {
  static constexpr int kElems = 256, kD = 0, kDmin = kHalfBytes, kScales = 2 * kHalfBytes,
                       kQuants = kScales + 16 * kTileRows, kBytes = kQuants + 8 * kCrumbBytes;
};
struct TileQ3_K {
  static constexpr int kElems = 256, kD = 0, kScales = kHalfBytes,
                       kQuants = kScales + 16 * kTileRows, kHigh = kQuants + 8 * kCrumbBytes,
                       kBytes = kHigh + 8 * kHighBytes;
};
struct TileQ4_K {
  static constexpr int kElems = 256, kD = 0, kDmin = kHalfBytes, kScales = 2 * kHalfBytes,
                       kQuants = kScales + 12 * kTileRows, kBytes = kQuants + 8 * kNibbleBytes;
};
struct TileQ5_K {
  static constexpr int kElems = 256, kD = 0, kDmin = kHalfBytes, kScales = 2 * kHalfBytes,
                       kQuants = kScales + 12 * kTileRows, kHigh = kQuants + 8 * kNibbleBytes,
                       kBytes = kHigh + 8 * kHighBytes;
};
struct TileQ6_K {
  static constexpr int kElems = 256, kD = 0, kScales = kHalfBytes,
                       kQuants = kScales + 16 * kTileRows, kCrumbs = kQuants + 8 * kNibbleBytes,
                       kBytes = kCrumbs + 8 * kCrumbBytes;
};
struct TileIQ4_XS {
  static constexpr int kElems = 256, kD = 0, kScales = kHalfBytes,
                       kQuants = kScales + 8 * kTileRows, kBytes = kQuants + 8 * kNibbleBytes;
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

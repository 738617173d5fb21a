// SPDX-License-Identifier: Apache-2.0
// Each value's code and each block's scales find their place in a tile: one short function a
// format. What a tile holds beyond the matrix stays zero.
#include "kernels/quant/mma_pack.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "kernels/common/parallel.hpp"
#include "tensor/mma_tile.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {
namespace {

// One row's place in a tile.
struct Row {
  std::byte* tile;
  int g;       // of a lane
  int second;  // 0: row g, 1: row g + 8

  void put16(int offset, uint16_t value) const { std::memcpy(tile + offset, &value, 2); }
};

// Code bytes of 32 values of `block`, kBits wide each.
template <int kBits>
void put_codes(const Row& row, int block, const uint8_t* codes) {
  auto* bytes = reinterpret_cast<uint8_t*>(row.tile);
  const int pair = block / 2, odd = block % 2;
  for (int k = 0; k < kMmaBlock; ++k) {
    const int lane = 4 * row.g + k % 16 / 4;
    const int upper = k / 16;
    const int reg = row.second + 2 * upper;
    const int byte = k % 4;
    if constexpr (kBits == 8) {
      bytes[(block * 32 + lane) * 16 + reg * 4 + byte] = codes[k];
      continue;
    }
    const int at = pair * 32 + lane;
    bytes[at * 16 + reg * 4 + byte] |= static_cast<uint8_t>((codes[k] & 15) << (4 * odd));
    uint8_t* high = bytes + MmaCodes<4>::kBytes;
    if constexpr (kBits == 5) {
      high[at * 4 + byte] |= static_cast<uint8_t>(codes[k] >> 4 << (4 * odd + reg));
    }
    if constexpr (kBits == 6) {
      high[at * 8 + odd * 4 + byte] |= static_cast<uint8_t>(codes[k] >> 4 << (2 * reg));
    }
  }
}

void nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 15;
    codes[i + 16] = qs[i] >> 4;
  }
}
void fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (qh[i / 8] >> (i % 8) & 1) << 4);
  }
}

template <class Format>
void put_scale(const Row& row, int block, uint16_t d) {
  row.put16(Format::kCodeBytes + (row.g * 8 + block) * 4 + 2 * row.second, d);
}
template <class Format>
void put_scale_min(const Row& row, int block, uint16_t d, uint16_t m) {
  const int at = Format::kCodeBytes + (row.g * 8 + block) * 8 + 2 * row.second;
  row.put16(at, d);
  row.put16(at + 4, m);
}

// Blocks of 32 values: `block` of the tile from one file block.
void put_block(const Row& row, int block, const BlockQ4_0& from) {
  uint8_t codes[32];
  nibbles(from.qs, codes);
  put_codes<4>(row, block, codes);
  put_scale<MmaFormat<DType::q4_0>>(row, block, from.d);
}
void put_block(const Row& row, int block, const BlockQ4_1& from) {
  uint8_t codes[32];
  nibbles(from.qs, codes);
  put_codes<4>(row, block, codes);
  put_scale_min<MmaFormat<DType::q4_1>>(row, block, from.d, from.m);
}
void put_block(const Row& row, int block, const BlockQ5_0& from) {
  uint8_t codes[32];
  nibbles(from.qs, codes);
  fifth_bits(from.qh, codes);
  put_codes<5>(row, block, codes);
  put_scale<MmaFormat<DType::q5_0>>(row, block, from.d);
}
void put_block(const Row& row, int block, const BlockQ5_1& from) {
  uint8_t codes[32];
  nibbles(from.qs, codes);
  fifth_bits(from.qh, codes);
  put_codes<5>(row, block, codes);
  put_scale_min<MmaFormat<DType::q5_1>>(row, block, from.d, from.m);
}
void put_block(const Row& row, int block, const BlockQ8_0& from) {
  put_codes<8>(row, block, reinterpret_cast<const uint8_t*>(from.qs));
  put_scale<MmaFormat<DType::q8_0>>(row, block, from.d);
}

// Scales and mins of a Q4_K or Q5_K block, taken apart into the words of four pairs.
template <class Format, class Block>
void put_k_header(const Row& row, const Block& from) {
  row.put16(Format::kCodeBytes + row.g * 8 + 2 * row.second, from.d);
  row.put16(Format::kCodeBytes + row.g * 8 + 4 + 2 * row.second, from.dmin);
  auto* bytes = reinterpret_cast<uint8_t*>(row.tile) + Format::kCodeBytes;
  for (int block = 0; block < 8; ++block) {
    uint8_t scale = 0, min = 0;
    unpack_scale_min_k4(block, from.scales, scale, min);
    const int at = row.g * 4 + block / 2, odd = block % 2;
    bytes[64 + at * 4 + 2 * row.second + odd] = static_cast<uint8_t>(scale | min >> 4 << 6);
    bytes[192 + at * 2 + odd] |= static_cast<uint8_t>((min & 15) << (4 * row.second));
  }
}

// Blocks of 256 values: a whole tile row.
void put_block(const Row& row, int, const BlockQ4_K& from) {
  uint8_t codes[32];
  for (int block = 0; block < 8; ++block) {
    for (int i = 0; i < 32; ++i) codes[i] = from.qs[block / 2 * 32 + i] >> (block % 2 * 4) & 15;
    put_codes<4>(row, block, codes);
  }
  put_k_header<MmaFormat<DType::q4_k>>(row, from);
}
void put_block(const Row& row, int, const BlockQ5_K& from) {
  uint8_t codes[32];
  for (int block = 0; block < 8; ++block) {
    for (int i = 0; i < 32; ++i) {
      const int low = from.qs[block / 2 * 32 + i] >> (block % 2 * 4) & 15;
      codes[i] = static_cast<uint8_t>(low | (from.qh[i] >> block & 1) << 4);
    }
    put_codes<5>(row, block, codes);
  }
  put_k_header<MmaFormat<DType::q5_k>>(row, from);
}
void put_block(const Row& row, int, const BlockQ6_K& from) {
  using Format = MmaFormat<DType::q6_k>;
  uint8_t codes[32];
  for (int block = 0; block < 8; ++block) {
    const int half = block / 4, quarter = block % 4;  // 128 values, 32 of them
    const uint8_t* ql = from.ql + 64 * half + 32 * (quarter % 2);
    const uint8_t* qh = from.qh + 32 * half;
    for (int i = 0; i < 32; ++i) {
      const int low = ql[i] >> (quarter / 2 * 4) & 15;
      codes[i] = static_cast<uint8_t>(low | (qh[i] >> (2 * quarter) & 3) << 4);
    }
    put_codes<6>(row, block, codes);
  }
  std::byte* scales = row.tile + Format::kCodeBytes;
  for (int group = 0; group < 16; ++group) {
    scales[row.g * 32 + group * 2 + row.second] = static_cast<std::byte>(from.scales[group]);
  }
  row.put16(Format::kCodeBytes + 256 + row.g * 4 + 2 * row.second, from.d);
}

// 16 columns of 16-bit floats.
void put_floats(const Row& row, int64_t step, const uint16_t* from) {
  for (int k = 0; k < 16; ++k) {
    const int lane = 4 * row.g + k % 8 / 2;
    const int reg = row.second + 2 * (k / 8);
    row.put16(static_cast<int>(step * 32 + lane) * 16 + reg * 4 + 2 * (k % 2), from[k]);
  }
}

template <class Block>
void pack_blocks(const std::byte* file, Row row, int64_t n_values, int tile_bytes) {
  constexpr int kValues = std::is_same_v<Block, BlockQ4_K> || std::is_same_v<Block, BlockQ5_K> ||
                                  std::is_same_v<Block, BlockQ6_K>
                              ? 256
                              : 32;
  constexpr int kPerTile = kMmaTileCols / kValues;
  for (int64_t i = 0; i < n_values / kValues; ++i) {
    Block block;
    std::memcpy(&block, file + i * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
    Row at = row;
    at.tile += i / kPerTile * tile_bytes;
    put_block(at, static_cast<int>(i % kPerTile), block);
  }
}

void pack_floats(const std::byte* file, Row row, int64_t n_values, int tile_bytes) {
  uint16_t values[16];
  for (int64_t begin = 0; begin < n_values; begin += 16) {
    std::memcpy(values, file + 2 * begin, sizeof(values));
    Row at = row;
    at.tile += begin / kMmaFloatCols * tile_bytes;
    put_floats(at, begin % kMmaFloatCols / 16, values);
  }
}

struct TypeRow {
  DType type;
  void (*pack)(const std::byte* file, Row row, int64_t n_values, int tile_bytes);
};
constexpr TypeRow kTypes[] = {
    {DType::f16, pack_floats},
    {DType::bf16, pack_floats},
    {DType::q4_0, pack_blocks<BlockQ4_0>},
    {DType::q4_1, pack_blocks<BlockQ4_1>},
    {DType::q5_0, pack_blocks<BlockQ5_0>},
    {DType::q5_1, pack_blocks<BlockQ5_1>},
    {DType::q8_0, pack_blocks<BlockQ8_0>},
    {DType::q4_k, pack_blocks<BlockQ4_K>},
    {DType::q5_k, pack_blocks<BlockQ5_K>},
    {DType::q6_k, pack_blocks<BlockQ6_K>},
};

const TypeRow& row_of(DType type) {
  std::string names;
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
    names += std::string(names.empty() ? "" : " ") + dtype_info(row.type).name;
  }
  fail(ErrorCode::unsupported,
       "the CUDA backend has no kernel for {} matrices; it has one for {}: use --backend cpu, or "
       "quantise the model to one of them",
       dtype_info(type).name, names);
}

}  // namespace

int64_t mma_tile_bytes(DType type) {
  int64_t bytes = 0;
  visit_mma_format(
      type, [&](auto constant) { bytes = MmaFormat<decltype(constant)::value>::kTileBytes; });
  return bytes;
}

int64_t mma_tiles_per_group(DType type, int64_t cols) {
  int64_t tile_cols = 1;
  visit_mma_format(
      type, [&](auto constant) { tile_cols = MmaFormat<decltype(constant)::value>::kTileCols; });
  return ceil_div(cols, tile_cols);
}

PackedMatrix plan_mma_matrix(DType file_type, int64_t rows, int64_t cols) {
  row_of(file_type);
  const DTypeInfo& info = dtype_info(file_type);
  const int block = std::max(info.block_elems, kMmaBlock);
  if (cols % block != 0) {
    fail(ErrorCode::unsupported,
         "the CUDA backend needs rows of {} in whole blocks of {}, found {} columns; use --backend "
         "cpu",
         info.name, block, cols);
  }
  PackedMatrix plan;
  plan.file_type = file_type;
  plan.packed_type = file_type;
  plan.rows = rows;
  plan.cols = cols;
  plan.file_bytes = rows * row_bytes(file_type, cols);
  plan.packed_bytes =
      ceil_div(rows, kMmaRows) * mma_tiles_per_group(file_type, cols) * mma_tile_bytes(file_type);
  return plan;
}

void pack_mma_groups(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                     int64_t group_begin, int64_t group_end, std::byte* packed) {
  const TypeRow& type = row_of(plan.packed_type);
  const int64_t tile_bytes = mma_tile_bytes(plan.packed_type);
  const int64_t group_bytes = mma_tiles_per_group(plan.packed_type, plan.cols) * tile_bytes;
  const int64_t file_row_bytes = row_bytes(plan.packed_type, plan.cols);
  parallel_for(&pool, group_end - group_begin, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* group = packed + i * group_bytes;
      std::memset(group, 0, static_cast<size_t>(group_bytes));
      const int64_t first = (group_begin + i) * kMmaRows;
      for (int64_t row = first; row < std::min(first + kMmaRows, plan.rows); ++row) {
        const int in_group = static_cast<int>(row - first);
        type.pack(file + row * file_row_bytes, Row{group, in_group % 8, in_group / 8}, plan.cols,
                  static_cast<int>(tile_bytes));
      }
    }
  });
}

}  // namespace fathom::quant

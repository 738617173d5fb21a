// SPDX-License-Identifier: Apache-2.0
#include "kernels/quant/pack.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "kernels/quant/dequant_ref.hpp"
#include "kernels/quant/tile_layout.hpp"
#include "tensor/half.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {
namespace {

uint32_t word(const uint8_t* p) {
  uint32_t out;
  std::memcpy(&out, p, 4);
  return out;
}

void put_word(std::byte* field, int index, int row, uint32_t value) {
  std::memcpy(field + 4 * (index * kTileRows + row), &value, 4);
}
void put_half(std::byte* field, int row, uint16_t value) {
  std::memcpy(field + 2 * row, &value, 2);
}
void put_byte(std::byte* field, int index, int row, uint8_t value) {
  field[index * kTileRows + row] = static_cast<std::byte>(value);
}

// 16 bytes whose low nibbles are values 0..15 and high nibbles 16..31 of a 32-value block.
void put_nibbles(std::byte* field, int row, const uint8_t* qs) {
  for (int w = 0; w < 4; ++w) put_word(field, w, row, word(qs + 4 * w));
}

// 1-bit codes, value k at bit k of `bits`: byte b, bit w of the result is value 4w+b.
uint32_t spread_high(uint32_t bits) {
  uint32_t out = 0;
  for (int b = 0; b < 4; ++b) {
    uint32_t x = (bits >> b) & 0x11111111u;
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    x = (x | x >> 12) & 0x000000ffu;
    out |= x << (8 * b);
  }
  return out;
}

// Bit `bit` of each of 32 bytes, value k at bit k.
uint32_t gather_bits(const uint8_t* bytes, int bit) {
  uint32_t out = 0;
  for (int part = 0; part < 4; ++part) {
    uint64_t x;
    std::memcpy(&x, bytes + 8 * part, 8);
    x = (x >> bit) & 0x0101010101010101ull;
    out |= static_cast<uint32_t>((x * 0x0102040810204080ull) >> 56) << (8 * part);
  }
  return out;
}

// 2-bit codes: value l of the block at bits `shift`, `shift`+1 of bytes[l].
void put_crumbs(std::byte* field, int row, const uint8_t* bytes, int shift) {
  for (int g = 0; g < 2; ++g) {
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      out |= ((word(bytes + 4 * (4 * g + i)) >> shift) & 0x03030303u) << (2 * i);
    }
    put_word(field, g, row, out);
  }
}

template <class Block>
const Block& block(const std::byte* p) {
  return *reinterpret_cast<const Block*>(p);
}

template <class Block, class Fn>
void each_row(const std::byte* const* rows, Fn fn) {
  for (int row = 0; row < kTileRows; ++row) fn(row, block<Block>(rows[row]));
}

template <class Tile, class Block>
void pack_nibbles_d(const std::byte* const* rows, std::byte* tile) {
  each_row<Block>(rows, [&](int row, const Block& b) {
    put_nibbles(tile + Tile::kQuants, row, b.qs);
    put_half(tile + Tile::kD, row, b.d);
  });
}

void pack_q4_1(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ4_1;
  each_row<BlockQ4_1>(rows, [&](int row, const BlockQ4_1& b) {
    put_nibbles(tile + T::kQuants, row, b.qs);
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kM, row, b.m);
  });
}

void pack_q5_0(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ5_0;
  each_row<BlockQ5_0>(rows, [&](int row, const BlockQ5_0& b) {
    put_nibbles(tile + T::kQuants, row, b.qs);
    put_word(tile + T::kHigh, 0, row, spread_high(word(b.qh)));
    put_half(tile + T::kD, row, b.d);
  });
}

void pack_q5_1(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ5_1;
  each_row<BlockQ5_1>(rows, [&](int row, const BlockQ5_1& b) {
    put_nibbles(tile + T::kQuants, row, b.qs);
    put_word(tile + T::kHigh, 0, row, spread_high(word(b.qh)));
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kM, row, b.m);
  });
}

void pack_q8_0(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ8_0;
  each_row<BlockQ8_0>(rows, [&](int row, const BlockQ8_0& b) {
    for (int w = 0; w < 8; ++w) {
      put_word(tile + T::kQuants, w, row, word(reinterpret_cast<const uint8_t*>(b.qs) + 4 * w));
    }
    put_half(tile + T::kD, row, b.d);
  });
}

void pack_mxfp4(const std::byte* const* rows, std::byte* tile) {
  using T = TileMXFP4;
  each_row<BlockMXFP4>(rows, [&](int row, const BlockMXFP4& b) {
    put_nibbles(tile + T::kQuants, row, b.qs);
    put_byte(tile + T::kE, 0, row, b.e);
  });
}

// The two 32-value blocks that share 32 bytes of nibbles, block `odd` in the high ones.
void nibbles_of_pair(const uint8_t* qs, int odd, uint8_t* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>(odd ? (qs[j] >> 4) | (qs[j + 16] & 0xf0)
                                      : (qs[j] & 0x0f) | (qs[j + 16] << 4));
  }
}

void pack_q2_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ2_K;
  each_row<BlockQ2_K>(rows, [&](int row, const BlockQ2_K& b) {
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kDmin, row, b.dmin);
    for (int i = 0; i < 16; ++i) put_byte(tile + T::kScales, i, row, b.scales[i]);
    for (int sub = 0; sub < 8; ++sub) {
      put_crumbs(tile + T::kQuants + sub * kCrumbBytes, row, b.qs + 32 * (sub / 4), 2 * (sub % 4));
    }
  });
}

// The sixteen 6-bit scales of a Q3_K block, 32 taken off: low nibbles in bytes 0..7 (i < 8 low
// half, i >= 8 high half), the upper two bits in bytes 8..11.
void q3_k_scales(const uint8_t* s, int8_t* out) {
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    const int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
    out[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

void pack_q3_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ3_K;
  each_row<BlockQ3_K>(rows, [&](int row, const BlockQ3_K& b) {
    put_half(tile + T::kD, row, b.d);
    int8_t scales[16];
    q3_k_scales(b.scales, scales);
    for (int i = 0; i < 16; ++i) {
      put_byte(tile + T::kScales, i, row, static_cast<uint8_t>(scales[i]));
    }
    for (int sub = 0; sub < 8; ++sub) {
      put_crumbs(tile + T::kQuants + sub * kCrumbBytes, row, b.qs + 32 * (sub / 4), 2 * (sub % 4));
      put_word(tile + T::kHigh, sub, row, spread_high(gather_bits(b.hmask, sub)));
    }
  });
}

void pack_q4_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ4_K;
  each_row<BlockQ4_K>(rows, [&](int row, const BlockQ4_K& b) {
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kDmin, row, b.dmin);
    for (int i = 0; i < 12; ++i) put_byte(tile + T::kScales, i, row, b.scales[i]);
    for (int sub = 0; sub < 8; ++sub) {
      uint8_t qs[16];
      nibbles_of_pair(b.qs + 32 * (sub / 2), sub % 2, qs);
      put_nibbles(tile + T::kQuants + sub * kNibbleBytes, row, qs);
    }
  });
}

void pack_q5_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ5_K;
  each_row<BlockQ5_K>(rows, [&](int row, const BlockQ5_K& b) {
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kDmin, row, b.dmin);
    for (int i = 0; i < 12; ++i) put_byte(tile + T::kScales, i, row, b.scales[i]);
    for (int sub = 0; sub < 8; ++sub) {
      uint8_t qs[16];
      nibbles_of_pair(b.qs + 32 * (sub / 2), sub % 2, qs);
      put_nibbles(tile + T::kQuants + sub * kNibbleBytes, row, qs);
      put_word(tile + T::kHigh, sub, row, spread_high(gather_bits(b.qh, sub)));
    }
  });
}

void pack_q6_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ6_K;
  each_row<BlockQ6_K>(rows, [&](int row, const BlockQ6_K& b) {
    put_half(tile + T::kD, row, b.d);
    for (int i = 0; i < 16; ++i) {
      put_byte(tile + T::kScales, i, row, static_cast<uint8_t>(b.scales[i]));
    }
    for (int sub = 0; sub < 8; ++sub) {
      const int half = sub / 4, j = sub % 4;
      uint8_t qs[16];
      nibbles_of_pair(b.ql + 64 * half + 32 * (j & 1), j >> 1, qs);
      put_nibbles(tile + T::kQuants + sub * kNibbleBytes, row, qs);
      put_crumbs(tile + T::kCrumbs + sub * kCrumbBytes, row, b.qh + 32 * half, 2 * j);
    }
  });
}

void pack_iq4_xs(const std::byte* const* rows, std::byte* tile) {
  using T = TileIQ4_XS;
  each_row<BlockIQ4_XS>(rows, [&](int row, const BlockIQ4_XS& b) {
    put_half(tile + T::kD, row, b.d);
    for (int sub = 0; sub < 8; ++sub) {
      const int low = (b.scales_l[sub / 2] >> (4 * (sub % 2))) & 15;
      const int high = (b.scales_h >> (2 * sub)) & 3;
      put_byte(tile + T::kScales, sub, row, static_cast<uint8_t>((low | high << 4) - 32));
      put_nibbles(tile + T::kQuants + sub * kNibbleBytes, row, b.qs + 16 * sub);
    }
  });
}

void pack_word32(const std::byte* const* rows, std::byte* tile) {
  for (int row = 0; row < kTileRows; ++row) std::memcpy(tile + 4 * row, rows[row], 4);
}
void pack_word16(const std::byte* const* rows, std::byte* tile) {
  for (int row = 0; row < kTileRows; ++row) std::memcpy(tile + 2 * row, rows[row], 2);
}

template <class Tile>
constexpr TileFormat format(DType type, void (*pack)(const std::byte* const*, std::byte*)) {
  return {type, Tile::kElems, Tile::kBytes, pack};
}

constexpr TileFormat kFormats[] = {
    format<TileF32>(DType::f32, pack_word32),
    format<TileF16>(DType::f16, pack_word16),
    format<TileF16>(DType::bf16, pack_word16),
    format<TileQ4_0>(DType::q4_0, pack_nibbles_d<TileQ4_0, BlockQ4_0>),
    format<TileQ4_1>(DType::q4_1, pack_q4_1),
    format<TileQ5_0>(DType::q5_0, pack_q5_0),
    format<TileQ5_1>(DType::q5_1, pack_q5_1),
    format<TileQ8_0>(DType::q8_0, pack_q8_0),
    format<TileQ2_K>(DType::q2_k, pack_q2_k),
    format<TileQ3_K>(DType::q3_k, pack_q3_k),
    format<TileQ4_K>(DType::q4_k, pack_q4_k),
    format<TileQ5_K>(DType::q5_k, pack_q5_k),
    format<TileQ6_K>(DType::q6_k, pack_q6_k),
    format<TileIQ4_NL>(DType::iq4_nl, pack_nibbles_d<TileIQ4_NL, BlockIQ4_NL>),
    format<TileIQ4_XS>(DType::iq4_xs, pack_iq4_xs),
    format<TileMXFP4>(DType::mxfp4, pack_mxfp4),
};

constexpr int kMaxBlockBytes = 256;

// Packs row group `group` straight from the file's blocks.
void pack_group(const PackedMatrix& plan, const TileFormat& format, const std::byte* file,
                int64_t group, std::byte* packed) {
  alignas(16) static constexpr std::byte kZeroBlock[kMaxBlockBytes] = {};
  const DTypeInfo& info = dtype_info(plan.file_type);
  const int64_t stride = row_bytes(plan.file_type, plan.cols);
  const int64_t n_tiles = plan.cols / format.tile_elems;
  std::byte* tile = packed + group * n_tiles * format.tile_bytes;
  for (int64_t t = 0; t < n_tiles; ++t, tile += format.tile_bytes) {
    const std::byte* rows[kTileRows];
    for (int r = 0; r < kTileRows; ++r) {
      const int64_t row = group * kTileRows + r;
      rows[r] = row < plan.rows ? file + row * stride + t * info.block_bytes : kZeroBlock;
    }
    format.pack(rows, tile);
  }
}

// Packs row group `group` as f32 tiles through dequantisation.
void pack_group_f32(const PackedMatrix& plan, const std::byte* file, int64_t group,
                    std::byte* packed, std::vector<float>& row_buffer) {
  row_buffer.resize(static_cast<size_t>(plan.cols));
  const int64_t stride = row_bytes(plan.file_type, plan.cols);
  std::byte* tiles = packed + group * plan.cols * TileF32::kBytes;
  for (int r = 0; r < kTileRows; ++r) {
    const int64_t row = group * kTileRows + r;
    if (row < plan.rows) {
      dequantize_row(plan.file_type, file + row * stride, row_buffer.data(), plan.cols);
    } else {
      std::fill(row_buffer.begin(), row_buffer.end(), 0.0f);
    }
    for (int64_t col = 0; col < plan.cols; ++col) {
      std::memcpy(tiles + col * TileF32::kBytes + 4 * r, &row_buffer[static_cast<size_t>(col)], 4);
    }
  }
}

}  // namespace

const TileFormat& tile_format(DType type) {
  for (const TileFormat& row : kFormats) {
    if (row.type == type) return row;
  }
  fail(ErrorCode::internal, "no packed layout for type {}", dtype_info(type).name);
}

PackedMatrix plan_matrix(DType file_type, int64_t rows, int64_t cols, Activations activations) {
  const DTypeInfo& info = dtype_info(file_type);
  if (cols % info.block_elems != 0) {
    fail(ErrorCode::unsupported, "a {} row of {} values is not a whole number of {}-value blocks",
         info.name, cols, info.block_elems);
  }
  PackedMatrix plan;
  plan.file_type = file_type;
  plan.packed_type = activations == Activations::f32 ? DType::f32 : file_type;
  plan.rows = rows;
  plan.cols = cols;
  plan.file_bytes = rows * row_bytes(file_type, cols);
  const TileFormat& format = tile_format(plan.packed_type);
  plan.packed_bytes = ceil_div(rows, kTileRows) * (cols / format.tile_elems) * format.tile_bytes;
  return plan;
}

void pack_matrix(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                 std::byte* packed) {
  const TileFormat& format = tile_format(plan.packed_type);
  const bool through_f32 = plan.packed_type != plan.file_type;
  Chunks chunks(ceil_div(plan.rows, kTileRows), 4);
  pool.run([&](Team&) {
    std::vector<float> row_buffer;
    for (int64_t begin, end; chunks.next(begin, end);) {
      for (int64_t group = begin; group < end; ++group) {
        if (through_f32) {
          pack_group_f32(plan, file, group, packed, row_buffer);
        } else {
          pack_group(plan, format, file, group, packed);
        }
      }
    }
  });
}

}  // namespace fathom::quant

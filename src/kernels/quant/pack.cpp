// SPDX-License-Identifier: Apache-2.0
// How each file format becomes a packed tile: one table row and one short function a format.
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
void put_plane(std::byte* field, int index, int row, int value) {
  field[index * kTileRows + row] = static_cast<std::byte>(value);
}
void put_pair(std::byte* field, int index, int row, int first, int second) {
  std::byte* pair = field + index * kPairBytes + 2 * row;
  pair[0] = static_cast<std::byte>(first);
  pair[1] = static_cast<std::byte>(second);
}

// The codes of 32 values, one a byte.
struct Codes {
  uint32_t c[8];
};

constexpr uint32_t bytes_of(uint32_t byte) { return byte * 0x01010101u; }

// Takes bits [shift, shift + bits) of 32 consecutive bytes.
Codes bit_field(const uint8_t* bytes, int shift, int bits) {
  Codes out;
  for (int w = 0; w < 8; ++w) {
    out.c[w] = (word(bytes + 4 * w) >> shift) & bytes_of((1u << bits) - 1);
  }
  return out;
}

// 16 bytes whose low nibbles are values 0..15 and high nibbles 16..31.
Codes nibbles(const uint8_t* qs) {
  Codes out;
  for (int w = 0; w < 4; ++w) {
    out.c[w] = word(qs + 4 * w) & bytes_of(15);
    out.c[w + 4] = (word(qs + 4 * w) >> 4) & bytes_of(15);
  }
  return out;
}

// Adds codes above `bit` low bits.
Codes with_high(Codes low, const Codes& high, int bit) {
  for (int w = 0; w < 8; ++w) low.c[w] |= high.c[w] << bit;
  return low;
}

// Bit k of `bits` is the code of value k.
Codes one_bit(uint32_t bits) {
  Codes out;
  for (int w = 0; w < 8; ++w) out.c[w] = ((bits >> (4 * w) & 15) * 0x00204081u) & bytes_of(1);
  return out;
}

// Writes the codes of one row as tile_layout.hpp says.
template <int kBits>
void put_codes(std::byte* field, int row, const Codes& codes) {
  const uint32_t* c = codes.c;
  // Bits [from, from + n) of each byte of c[w], moved to bit `to`.
  auto part = [&](int w, int from, int n, int to) {
    return ((c[w] >> from) & bytes_of((1u << n) - 1)) << to;
  };
  auto put = [&](int index, uint32_t value) { put_word(field, index, row, value); };
  if constexpr (kBits == 2) {
    for (int g = 0; g < 2; ++g) {
      put(g, c[4 * g] | c[4 * g + 1] << 2 | c[4 * g + 2] << 4 | c[4 * g + 3] << 6);
    }
  } else if constexpr (kBits == 3) {
    put(0, c[0] | c[1] << 3 | part(6, 0, 2, 6));
    put(1, c[2] | c[3] << 3 | part(6, 2, 1, 6) | part(7, 0, 1, 7));
    put(2, c[4] | c[5] << 3 | part(7, 1, 2, 6));
  } else if constexpr (kBits == 4) {
    for (int w = 0; w < 4; ++w) put(w, c[w] | c[w + 4] << 4);
  } else if constexpr (kBits == 5) {
    for (int i = 0; i < 3; ++i) put(i, c[i] | part(5 + i, 0, 3, 5));
    put(3, c[3] | part(5, 3, 2, 5) | part(7, 3, 1, 7));
    put(4, c[4] | part(6, 3, 2, 5) | part(7, 4, 1, 7));
  } else if constexpr (kBits == 6) {
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 3; ++i) put(3 * h + i, c[4 * h + i] | part(4 * h + 3, 2 * i, 2, 6));
    }
  } else {
    static_assert(kBits == 8);
    for (int w = 0; w < 8; ++w) put(w, c[w]);
  }
}

// Codes `sub` of a tile.
template <class Tile>
void put_codes_of(std::byte* tile, int sub, int row, const Codes& codes) {
  put_codes<Tile::kBits>(tile + Tile::kCodes + sub * code_bytes(Tile::kBits), row, codes);
}

template <class Block, class Fn>
void each_row(const std::byte* const* rows, Fn fn) {
  for (int row = 0; row < kTileRows; ++row) {
    fn(row, *reinterpret_cast<const Block*>(rows[row]));
  }
}

// Formats of one f16 scale for 32 values; codes(block) takes the codes out.
template <class Tile, class Block, auto codes>
void pack_d(const std::byte* const* rows, std::byte* tile) {
  each_row<Block>(rows, [&](int row, const Block& b) {
    put_codes_of<Tile>(tile, 0, row, codes(b));
    put_half(tile + Tile::kD, row, b.d);
    if constexpr (requires { Tile::kM; }) put_half(tile + Tile::kM, row, b.m);
  });
}

constexpr auto nibble_codes = [](const auto& b) { return nibbles(b.qs); };
constexpr auto five_bit_codes = [](const auto& b) {
  return with_high(nibbles(b.qs), one_bit(word(b.qh)), 4);
};
constexpr auto byte_codes = [](const auto& b) {
  return bit_field(reinterpret_cast<const uint8_t*>(b.qs), 0, 8);
};

void pack_mxfp4(const std::byte* const* rows, std::byte* tile) {
  using T = TileMXFP4;
  each_row<BlockMXFP4>(rows, [&](int row, const BlockMXFP4& b) {
    put_codes_of<T>(tile, 0, row, nibbles(b.qs));
    put_plane(tile + T::kE, 0, row, b.e);
  });
}

void pack_q2_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ2_K;
  each_row<BlockQ2_K>(rows, [&](int row, const BlockQ2_K& b) {
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kDmin, row, b.dmin);
    for (int sub = 0; sub < 8; ++sub) {
      put_pair(tile + T::kScales, sub, row, b.scales[2 * sub], b.scales[2 * sub + 1]);
      put_codes_of<T>(tile, sub, row, bit_field(b.qs + 32 * (sub / 4), 2 * (sub % 4), 2));
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
    for (int sub = 0; sub < 8; ++sub) {
      put_pair(tile + T::kScales, sub, row, scales[2 * sub], scales[2 * sub + 1]);
      const Codes low = bit_field(b.qs + 32 * (sub / 4), 2 * (sub % 4), 2);
      put_codes_of<T>(tile, sub, row, with_high(low, bit_field(b.hmask, sub, 1), 2));
    }
  });
}

// Q4_K and Q5_K: codes(block, sub) takes the codes out.
template <class T, class Block, auto codes>
void pack_min_scales(const std::byte* const* rows, std::byte* tile) {
  each_row<Block>(rows, [&](int row, const Block& b) {
    put_half(tile + T::kD, row, b.d);
    put_half(tile + T::kDmin, row, b.dmin);
    for (int pair = 0; pair < 4; ++pair) {
      uint8_t s0, s1, m0, m1;
      unpack_scale_min_k4(2 * pair, b.scales, s0, m0);
      unpack_scale_min_k4(2 * pair + 1, b.scales, s1, m1);
      std::byte* planes = tile + T::kScales + 3 * pair * kTileRows;
      put_plane(planes, 0, row, s0 | s1 >> 4 << 6);
      put_plane(planes, 1, row, m0 | m1 >> 4 << 6);
      put_plane(planes, 2, row, (s1 & 15) | (m1 & 15) << 4);
    }
    for (int sub = 0; sub < 8; ++sub) put_codes_of<T>(tile, sub, row, codes(b, sub));
  });
}

// Two 32-value blocks share 32 bytes: the odd one has the high nibbles.
constexpr auto q4_k_codes = [](const auto& b, int sub) {
  return bit_field(b.qs + 32 * (sub / 2), 4 * (sub % 2), 4);
};
constexpr auto q5_k_codes = [](const auto& b, int sub) {
  return with_high(q4_k_codes(b, sub), bit_field(b.qh, sub, 1), 4);
};

void pack_q6_k(const std::byte* const* rows, std::byte* tile) {
  using T = TileQ6_K;
  each_row<BlockQ6_K>(rows, [&](int row, const BlockQ6_K& b) {
    put_half(tile + T::kD, row, b.d);
    for (int sub = 0; sub < 8; ++sub) {
      put_pair(tile + T::kScales, sub, row, b.scales[2 * sub], b.scales[2 * sub + 1]);
      const int half = sub / 4, j = sub % 4;
      const Codes low = bit_field(b.ql + 64 * half + 32 * (j & 1), 4 * (j >> 1), 4);
      put_codes_of<T>(tile, sub, row, with_high(low, bit_field(b.qh + 32 * half, 2 * j, 2), 4));
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
      put_plane(tile + T::kScales, sub, row, (low | high << 4) - 32);
      put_codes_of<T>(tile, sub, row, nibbles(b.qs + 16 * sub));
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
    format<TileQ4_0>(DType::q4_0, pack_d<TileQ4_0, BlockQ4_0, nibble_codes>),
    format<TileQ4_1>(DType::q4_1, pack_d<TileQ4_1, BlockQ4_1, nibble_codes>),
    format<TileQ5_0>(DType::q5_0, pack_d<TileQ5_0, BlockQ5_0, five_bit_codes>),
    format<TileQ5_1>(DType::q5_1, pack_d<TileQ5_1, BlockQ5_1, five_bit_codes>),
    format<TileQ8_0>(DType::q8_0, pack_d<TileQ8_0, BlockQ8_0, byte_codes>),
    format<TileQ2_K>(DType::q2_k, pack_q2_k),
    format<TileQ3_K>(DType::q3_k, pack_q3_k),
    format<TileQ4_K>(DType::q4_k, pack_min_scales<TileQ4_K, BlockQ4_K, q4_k_codes>),
    format<TileQ5_K>(DType::q5_k, pack_min_scales<TileQ5_K, BlockQ5_K, q5_k_codes>),
    format<TileQ6_K>(DType::q6_k, pack_q6_k),
    format<TileIQ4_NL>(DType::iq4_nl, pack_d<TileIQ4_NL, BlockIQ4_NL, nibble_codes>),
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

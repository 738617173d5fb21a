// SPDX-License-Identifier: Apache-2.0
// Tiles for tensor cores, read back as the lanes of a warp read them: every value of every format
// equals the reference's, and what lies outside of the matrix is zero.
#include "kernels/quant/mma_pack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "kernels/quant/cases.hpp"
#include "kernels/quant/dequant_ref.hpp"
#include "tensor/half.hpp"
#include "tensor/mma_tile.hpp"

namespace fathom::quant {
namespace {

constexpr DType kTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                            DType::q4_k, DType::q5_k, DType::q6_k, DType::f16,  DType::bf16};

// The value of a code and its scales, in the order of operations of dequant_ref.
template <class Format>
float value_of(const MmaScales& s, int row, int upper, int code) {
  const float d = f16_to_f32(s.d[row]);
  const float q = static_cast<float>(code - Format::kOffset);
  if constexpr (Format::kKind == MmaKind::symmetric) return d * q;
  if constexpr (Format::kKind == MmaKind::affine) return d * q + f16_to_f32(s.m[row]);
  if constexpr (Format::kKind == MmaKind::affine_k) {
    return d * s.scale[row] * q - f16_to_f32(s.m[row]) * s.min[row];
  }
  return d * s.half[upper][row] * q;
}

// [16 rows, tile columns] of one tile.
template <DType type>
std::vector<float> read_tile(const std::byte* tile) {
  using Format = MmaFormat<type>;
  std::vector<float> out(kMmaRows * Format::kTileCols);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    if constexpr (Format::kKind == MmaKind::real) {
      for (int step = 0; step < kMmaFloatCols / 16; ++step) {
        const Words4 w = load_as<Words4>(tile + (step * 32 + lane) * 16);
        for (int r = 0; r < 4; ++r) {
          for (int i = 0; i < 2; ++i) {
            const int row = g + 8 * (r % 2), col = 16 * step + 8 * (r / 2) + 2 * t + i;
            const auto bits = static_cast<uint16_t>(w.x[r] >> 16 * i);
            out[row * Format::kTileCols + col] =
                type == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
          }
        }
      }
    } else {
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t a[2][4];
        MmaCodes<Format::kBits>::load(tile, pair, lane, a);
        for (int i = 0; i < 2 * 4 * 4; ++i) {
          const int block = 2 * pair + i / 16, r = i / 4 % 4, byte = i % 4;
          const int row = g + 8 * (r % 2), col = 32 * block + 16 * (r / 2) + 4 * t + byte;
          const uint32_t bits = a[i / 16][r] >> 8 * byte & 255;
          const int scale = i / 16 ? MmaCodes<Format::kBits>::kSecondScale : 1;
          EXPECT_EQ(bits % scale, 0u);
          const int code =
              Format::kBits == 8 ? static_cast<int8_t>(bits) : static_cast<int>(bits) / scale;
          out[row * Format::kTileCols + col] =
              value_of<Format>(load_mma_scales<Format>(tile, g, block), r % 2, r / 2, code);
        }
      }
    }
  }
  return out;
}

void expect_equal(DType type, int64_t rows, int64_t cols) {
  SCOPED_TRACE(std::string(dtype_info(type).name) + " " + std::to_string(rows) + " x " +
               std::to_string(cols));
  const std::vector<std::byte> file = random_weights(type, rows, cols, 7);
  const PackedMatrix plan = plan_mma_matrix(type, rows, cols);
  std::vector<Words4> memory(static_cast<size_t>(plan.packed_bytes) / sizeof(Words4));
  auto* packed = reinterpret_cast<std::byte*>(memory.data());
  ThreadPool pool(2, false);
  const int64_t n_groups = (rows + kMmaRows - 1) / kMmaRows;
  const int64_t group_bytes = plan.packed_bytes / n_groups;
  // In two parts, as a loader does it.
  pack_mma_groups(pool, plan, file.data(), 0, n_groups / 2, packed);
  pack_mma_groups(pool, plan, file.data(), n_groups / 2, n_groups,
                  packed + n_groups / 2 * group_bytes);
  std::vector<float> expected(static_cast<size_t>(cols));
  visit_mma_format(type, [&](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    using Format = MmaFormat<kType>;
    const int64_t n_tiles = mma_tiles_per_group(type, cols);
    for (int64_t group = 0; group < n_groups; ++group) {
      for (int64_t tile = 0; tile < n_tiles; ++tile) {
        const std::vector<float> got =
            read_tile<kType>(packed + group * group_bytes + tile * Format::kTileBytes);
        for (int64_t i = 0; i < kMmaRows; ++i) {
          const int64_t row = group * kMmaRows + i;
          if (row < rows) {
            dequantize_row(type, file.data() + row * row_bytes(type, cols), expected.data(), cols);
          }
          for (int64_t c = 0; c < Format::kTileCols; ++c) {
            const int64_t col = tile * Format::kTileCols + c;
            const float value = got[static_cast<size_t>(i * Format::kTileCols + c)];
            const float want = row < rows && col < cols ? expected[static_cast<size_t>(col)] : 0.0f;
            ASSERT_EQ(value, want) << "row " << row << ", column " << col;
          }
        }
      }
    }
  });
}

TEST(MmaPack, LanesReadTheValuesOfTheFile) {
  for (const DType type : kTypes) {
    const int64_t block = dtype_info(type).block_elems;
    expect_equal(type, 16, 256);
    expect_equal(type, 37, std::max<int64_t>(block, 32) * (block == 256 ? 3 : 11));
    expect_equal(type, 1, std::max<int64_t>(block, 32));
  }
}

TEST(MmaPack, APackedMatrixHasTheBytesOfTheFile) {
  for (const DType type : kTypes) {
    const PackedMatrix plan = plan_mma_matrix(type, 64, 1024);
    EXPECT_EQ(plan.packed_bytes, plan.file_bytes) << dtype_info(type).name;
  }
}

TEST(MmaPack, RefusesOtherTypesByName) {
  for (const DType type : {DType::f32, DType::q2_k, DType::mxfp4, DType::iq4_xs}) {
    try {
      plan_mma_matrix(type, 256, 256);
      FAIL() << dtype_info(type).name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), testing::HasSubstr(dtype_info(type).name));
      EXPECT_THAT(error.what(), testing::HasSubstr("Q4_K"));
    }
  }
  EXPECT_THROW(plan_mma_matrix(DType::q4_k, 16, 288), Error);
  EXPECT_THROW(plan_mma_matrix(DType::f16, 16, 40), Error);
}

TEST(MmaPack, ActivationPlacesAreAPermutation) {
  bool bytes[32] = {}, halves[16] = {};
  for (int k = 0; k < 32; ++k) bytes[mma_act_byte(k)] = true;
  for (int k = 0; k < 16; ++k) halves[mma_act_half(k)] = true;
  for (const bool seen : bytes) EXPECT_TRUE(seen);
  for (const bool seen : halves) EXPECT_TRUE(seen);
  // A lane's two registers stand side by side: columns 4t.. and 16 + 4t..
  for (int t = 0; t < 4; ++t) {
    EXPECT_EQ(mma_act_byte(4 * t), 8 * t);
    EXPECT_EQ(mma_act_byte(16 + 4 * t), 8 * t + 4);
    EXPECT_EQ(mma_act_half(2 * t), 4 * t);
    EXPECT_EQ(mma_act_half(8 + 2 * t), 4 * t + 2);
  }
}

}  // namespace
}  // namespace fathom::quant

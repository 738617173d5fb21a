// SPDX-License-Identifier: Apache-2.0
// Blocks worked by hand, readable by eye: where each format keeps a value's bits. The bit-for-bit
// comparison over random and extreme blocks is tools/oracles/quant_oracle.py.
#include "kernels/quant/dequant_ref.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "kernels/quant/quantize_ref.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {
namespace {

constexpr uint16_t kOne = 0x3c00;   // f16 1.0
constexpr uint16_t kHalf = 0x3800;  // f16 0.5

template <class Block>
std::vector<float> expand(DType type, const Block& block) {
  std::vector<float> out(static_cast<size_t>(dtype_info(type).block_elems), NAN);
  EXPECT_EQ(sizeof(Block), static_cast<size_t>(dtype_info(type).block_bytes));
  dequantize_row(type, reinterpret_cast<const std::byte*>(&block), out.data(),
                 dtype_info(type).block_elems);
  return out;
}

TEST(DequantRef, EveryTypeHasARow) {
  for (const DTypeInfo& info : all_dtypes()) EXPECT_NE(dequant_fn(info.type), nullptr);
}

TEST(DequantRef, Q4NibblesHoldTheTwoHalves) {
  BlockQ4_0 b{.d = kHalf, .qs = {}};
  b.qs[3] = 0xf1;
  const auto w = expand(DType::q4_0, b);
  EXPECT_EQ(w[3], 0.5f * (1 - 8));
  EXPECT_EQ(w[19], 0.5f * (15 - 8));
  EXPECT_EQ(w[0], -4.0f);
  BlockQ4_1 c{.d = kHalf, .m = kOne, .qs = {}};
  c.qs[15] = 0x21;
  EXPECT_EQ(expand(DType::q4_1, c)[15], 1.5f);
  EXPECT_EQ(expand(DType::q4_1, c)[31], 2.0f);
}

TEST(DequantRef, Q5FifthBitsAreInValueOrder) {
  BlockQ5_0 b{.d = kOne, .qh = {0x02, 0, 0, 0x80}, .qs = {}};
  b.qs[1] = 0x03;
  const auto w = expand(DType::q5_0, b);
  EXPECT_EQ(w[1], 3.0f);   // 16 + 3 - 16
  EXPECT_EQ(w[31], 0.0f);  // 16 + 0 - 16
  EXPECT_EQ(w[17], -16.0f);
  BlockQ5_1 c{.d = kOne, .m = kHalf, .qh = {0, 0, 1, 0}, .qs = {}};
  EXPECT_EQ(expand(DType::q5_1, c)[16], 16.5f);
}

TEST(DequantRef, Q4KScalesAboveFourBorrowTheirTopBits) {
  BlockQ4_K b{.d = kOne, .dmin = kOne, .scales = {}, .qs = {}};
  b.scales[1] = 0x80 | 5;  // scale 1 is 5; top bits 2 belong to scale 5
  b.scales[5] = 0x40 | 7;  // min 1 is 7; top bits 1 belong to min 5
  b.scales[9] = 0x3a;      // low nibble 10 of scale 5, 3 of min 5
  b.qs[32] = 0x02;         // sub-block 2 value 0 is 2, sub-block 3 value 0 is 0
  b.qs[0] = 0x40;          // sub-block 1 value 0 is 4
  b.qs[64] = 0x30;         // sub-block 5 value 0 is 3
  const auto w = expand(DType::q4_k, b);
  EXPECT_EQ(w[32], 5.0f * 4 - 7);
  EXPECT_EQ(w[33], -7.0f);
  EXPECT_EQ(w[160], (10 + 32) * 3.0f - (3 + 16));
  EXPECT_EQ(w[64], 0.0f) << "scale 2 is zero";
}

TEST(DequantRef, Q5KHighBitOfSubBlockIsBitOfItsNumber) {
  BlockQ5_K b{.d = kOne, .dmin = kOne, .scales = {}, .qh = {}, .qs = {}};
  b.scales[3] = 2;
  b.qh[4] = 1 << 3;
  b.qs[32 + 4] = 0x10;
  EXPECT_EQ(expand(DType::q5_k, b)[3 * 32 + 4], 2.0f * 17);
}

TEST(DequantRef, Q6KIsInterleavedByThirtyTwo) {
  BlockQ6_K b{.ql = {}, .qh = {}, .scales = {}, .d = kOne};
  for (auto& s : b.scales) s = 1;
  b.scales[2] = -3;         // values 32..47
  b.ql[32 + 1] = 0x25;      // low nibble: value 33; high nibble: value 97
  b.qh[1] = 0b11'00'01'10;  // values 1, 33, 65, 97 from the low bits up
  const auto w = expand(DType::q6_k, b);
  EXPECT_EQ(w[1], 2 * 16 - 32.0f);
  EXPECT_EQ(w[33], -3.0f * (5 + 16 - 32));
  EXPECT_EQ(w[65], -32.0f);
  EXPECT_EQ(w[97], 2 + 48 - 32.0f);
  EXPECT_EQ(w[128 + 1], -32.0f) << "the second half has bytes of its own";
}

TEST(DequantRef, Q3KClearHighBitMeansMinusFour) {
  BlockQ3_K b{.hmask = {}, .qs = {}, .scales = {}, .d = kOne};
  b.scales[0] = 0x01;  // group 0: low 1; group 8: low 0
  b.scales[8] = 0x02;  // bits 0-1: group 0 gets 2 << 4
  b.qs[0] = 0x03;
  b.hmask[1] = 0x01;
  const auto w = expand(DType::q3_k, b);  // scale of group 0 is 33 - 32 = 1
  EXPECT_EQ(w[0], 3.0f - 4);
  EXPECT_EQ(w[1], 0.0f);
  EXPECT_EQ(w[2], -4.0f);
}

TEST(DequantRef, Q2KGroupsOfSixteen) {
  BlockQ2_K b{.scales = {}, .qs = {}, .d = kOne, .dmin = kHalf};
  b.scales[3] = 0x25;        // group 3: scale 5, min 2
  b.qs[16] = 0b00'00'11'00;  // group 3 is bits 2-3 of bytes 16..31
  EXPECT_EQ(expand(DType::q2_k, b)[48], 5.0f * 3 - 1);
}

TEST(DequantRef, CodebookFormats) {
  BlockIQ4_NL a{.d = kOne, .qs = {}};
  a.qs[0] = 0xf8;
  EXPECT_EQ(expand(DType::iq4_nl, a)[0], 1.0f);
  EXPECT_EQ(expand(DType::iq4_nl, a)[16], 113.0f);
  BlockIQ4_XS b{.d = kOne, .scales_h = 2 << 6, .scales_l = {0, 0x50, 0, 0}, .qs = {}};
  b.qs[48] = 0x0f;  // sub-block 3: scale 5 + 32 - 32
  EXPECT_EQ(expand(DType::iq4_xs, b)[96], 5.0f * 113);
  BlockMXFP4 c{.e = 128, .qs = {}};
  c.qs[2] = 0x71;
  EXPECT_EQ(expand(DType::mxfp4, c)[2], 1.0f);
  EXPECT_EQ(expand(DType::mxfp4, c)[18], 12.0f);
}

TEST(QuantizeRef, RoundTripStaysWithinHalfAStep) {
  std::vector<float> x(64), y(64);
  for (int i = 0; i < 64; ++i) x[static_cast<size_t>(i)] = std::sin(0.7f * static_cast<float>(i));
  struct Case {
    DType type;
    float bound;  // half a step, or a whole one at the clipped end of the symmetric formats
  };
  for (const auto& [type, bound] :
       {Case{DType::f32, 0.0f}, Case{DType::f16, 0x1p-12f}, Case{DType::bf16, 0x1p-9f},
        Case{DType::q4_0, 0.126f}, Case{DType::q5_0, 0.063f}, Case{DType::q4_1, 0.0675f},
        Case{DType::q5_1, 0.033f}, Case{DType::q8_0, 0.0043f}}) {
    std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(type, 64)));
    quantize_row(type, x.data(), blocks.data(), 64);
    dequantize_row(type, blocks.data(), y.data(), 64);
    float worst = 0;
    for (size_t i = 0; i < 64; ++i) worst = std::max(worst, std::fabs(x[i] - y[i]));
    EXPECT_LE(worst, bound) << dtype_info(type).name;
    EXPECT_EQ(worst > 0, type != DType::f32) << dtype_info(type).name;
  }
}

TEST(QuantizeRef, RefusalListsWhatThereIs) {
  float x[256] = {};
  std::byte out[256];
  try {
    quantize_row(DType::q4_k, x, out, 256);
    FAIL() << "Q4_K has no quantiser";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("Q4_K"), testing::HasSubstr("Q8_0")));
  }
}

}  // namespace
}  // namespace fathom::quant

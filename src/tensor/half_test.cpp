// SPDX-License-Identifier: Apache-2.0
// The scalar conversions against the compiler's _Float16, over all 65536 halves and every float
// that lies on, just below or just above a rounding boundary.
#include "tensor/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace fathom {
namespace {

uint16_t compiler_f32_to_f16(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

bool is_f16_nan(uint32_t h) { return (h & 0x7fff) > 0x7c00; }

TEST(Half, EveryF16WidensAsTheCompilerDoes) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float ours = f16_to_f32(static_cast<uint16_t>(h));
    const float theirs = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(h)));
    if (is_f16_nan(h)) {
      EXPECT_TRUE(std::isnan(ours)) << h;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(ours), std::bit_cast<uint32_t>(theirs)) << h;
      EXPECT_EQ(f32_to_f16(ours), h) << "round trip";
    }
  }
}

TEST(Half, RoundingToF16IsNearestEvenAtEveryBoundary) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const float here = f16_to_f32(static_cast<uint16_t>(h));
    // From the largest half the next step would be 65536, which is what infinity stands for.
    const float next = h == 0x7bff ? 65536.0f : f16_to_f32(static_cast<uint16_t>(h + 1));
    const float middle = here + (next - here) / 2;  // exact: f32 has 13 more bits
    for (float value : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, 1e9f)}) {
      EXPECT_EQ(f32_to_f16(value), compiler_f32_to_f16(value)) << value;
      EXPECT_EQ(f32_to_f16(-value), compiler_f32_to_f16(-value)) << -value;
    }
  }
}

TEST(Half, SpecialValues) {
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(f32_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
  EXPECT_TRUE(is_f16_nan(f32_to_f16(NAN)));
  EXPECT_TRUE(is_f16_nan(f32_to_f16(std::bit_cast<float>(0x7f800001u)))) << "payload below f16's";
}

TEST(Half, Bf16KeepsTheUpperHalfAndRoundsToNearestEven) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float wide = bf16_to_f32(static_cast<uint16_t>(h));
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), h << 16);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(f32_to_bf16(wide), h);
  }
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80) << "tie, even stays";
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82) << "tie, odd goes up";
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80) << "overflows to infinity";
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Half, E8m0IsHalfOfAPowerOfTwo) {
  for (int e = 0; e < 256; ++e) {
    EXPECT_EQ(e8m0_to_f32_half(static_cast<uint8_t>(e)), std::ldexp(1.0f, e - 128)) << e;
  }
}

}  // namespace
}  // namespace fathom

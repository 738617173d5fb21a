// SPDX-License-Identifier: Apache-2.0
// E4M3 against the specification's table: all 256 codes, and every f16, every float on or beside a
// rounding boundary to the nearest of them.
#include "tensor/e4m3.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tensor/half.hpp"

namespace fathom {
namespace {

constexpr uint8_t kNan = 0x7f;

// OCP 8-bit Floating Point Specification 1.0, tables 1 and 2.
double by_specification(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? mantissa / 8.0 * std::pow(2.0, -6)
                                         : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}

// The nearest of all codes of the value's sign; of two as near the even one.
uint8_t nearest(float value) {
  if (std::isnan(value)) return std::signbit(value) ? 0x80 | kNan : kNan;
  const int sign = std::signbit(value) ? 0x80 : 0;
  int best = sign;
  double least = INFINITY;
  for (int code = sign; code < sign + kNan; ++code) {
    const double off =
        std::fabs(std::fabs(static_cast<double>(value)) - std::fabs(by_specification(code)));
    if (off < least || (off == least && code % 2 == 0)) {
      least = off;
      best = code;
    }
  }
  return static_cast<uint8_t>(std::isinf(value) ? sign + kNan - 1 : best);
}

TEST(E4m3, EveryCodeIsTheSpecificationsValue) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(static_cast<uint8_t>(code));
    if ((code & 0x7f) == kNan) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80);
    } else {
      EXPECT_EQ(value, by_specification(code)) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
      EXPECT_EQ(f32_to_e4m3(value), code) << "round trip";
    }
  }
  EXPECT_EQ(e4m3_to_f32(0x7e), kE4m3Max);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0x81), -0x1p-9f);
}

TEST(E4m3, EveryF16RoundsToTheNearestCode) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float value = f16_to_f32(static_cast<uint16_t>(h));
    ASSERT_EQ(f32_to_e4m3(value), nearest(value)) << value;
  }
}

TEST(E4m3, RoundingIsNearestEvenAtEveryBoundary) {
  for (int code = 0; code < kNan; ++code) {
    const double here = by_specification(code);
    const double next = code + 1 == kNan ? 480 : by_specification(code + 1);
    const float middle = static_cast<float>((here + next) / 2);
    for (const float value : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e9f)}) {
      EXPECT_EQ(f32_to_e4m3(value), nearest(value)) << value;
      EXPECT_EQ(f32_to_e4m3(-value), nearest(-value)) << -value;
    }
  }
}

TEST(E4m3, Extremes) {
  for (const float large : {448.0f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(f32_to_e4m3(large), 0x7e) << large;
    EXPECT_EQ(f32_to_e4m3(-large), 0xfe) << large;
  }
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(f32_to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()), kNan);
  EXPECT_EQ(f32_to_e4m3(std::bit_cast<float>(0xff800001u)), 0x80 | kNan);
}

TEST(E4m3, PairsOfHalvesAreThe256thOfTheCodes) {
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) == kNan) continue;
    for (const uint32_t other : {0x00u, 0x7eu, 0xfeu, 0xffu, 0x81u}) {
      const uint32_t even = e4m3_even_f16(code | other << 8 | code << 16 | other << 24);
      const uint32_t odd = e4m3_odd_f16(other | code << 8 | other << 16 | code << 24);
      const float expected = e4m3_to_f32(static_cast<uint8_t>(code)) / 256;
      for (const uint32_t pair : {even, odd}) {
        EXPECT_EQ(f16_to_f32(static_cast<uint16_t>(pair)), expected) << code;
        EXPECT_EQ(pair & 0xffff, pair >> 16) << code;
      }
    }
  }
}

TEST(E4m3, TheScaleTakesTheLargestToTheLargestCode) {
  for (const float largest :
       {448.0f, 1.0f, 3.1e-20f, 0.07f, 65504.0f, 1e-37f, std::numeric_limits<float>::max()}) {
    const float scale = e4m3_scale(largest);
    EXPECT_EQ(e4m3_code(largest, scale), 0x7e) << largest;
    EXPECT_EQ(e4m3_code(-largest, scale), 0xfe) << largest;
    EXPECT_TRUE(std::isfinite(scale * 256)) << "kernels read codes that are 256 times smaller";
  }
  EXPECT_EQ(e4m3_scale(0.0f), 0.0f);
  EXPECT_EQ(e4m3_code(0.0f, 0.0f), 0x00);
  EXPECT_EQ(e4m3_code(1e-45f, e4m3_scale(1e-45f)), 0x00) << "no scale is small enough";
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(e4m3_scale(bad)), 0x7fc00000u);
    EXPECT_EQ(e4m3_code(1.0f, e4m3_scale(bad)), 0x00);
  }
}

}  // namespace
}  // namespace fathom

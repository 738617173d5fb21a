// SPDX-License-Identifier: Apache-2.0
// The q8_0 cache: the CPU's quantiser and the reference's give the same codes and scales, and those
// are the nearest that the stored scale allows.
#include "kernels/common/kv_quant_cpu.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/kv_ref.hpp"

namespace fathom {
namespace {

struct Block {
  uint16_t scale;
  int8_t codes[32];
};

Block by_cpu(const std::vector<float>& x) {
  Block out;
  quantize_kv(x.data(), out.codes, out.scale);
  return out;
}

// A value tile of head_dim 32: the codes of token 0 first, its scale behind those of 16 tokens.
Block by_reference(const std::vector<float>& x) {
  const KvGeometry geometry{KvFormat::q8_0, 1, 32, kKvTileTokens};
  std::vector<std::byte> tile(static_cast<size_t>(geometry.page_bytes()));
  const KvLayerView view{geometry, tile.data(), tile.data()};
  const int32_t page = 0;
  kv_store_ref(view, KvPart::value, &page, 0, 0, std::vector<double>(x.begin(), x.end()).data());
  Block out;
  std::memcpy(out.codes, tile.data(), sizeof out.codes);
  std::memcpy(&out.scale, tile.data() + 32 * kKvTileTokens, sizeof out.scale);
  return out;
}

void expect_equal(const std::vector<float>& x) {
  const Block cpu = by_cpu(x), reference = by_reference(x);
  ASSERT_EQ(cpu.scale, reference.scale) << "x[0] = " << x[0];
  for (int i = 0; i < 32; ++i) ASSERT_EQ(cpu.codes[i], reference.codes[i]) << x[i] << " at " << i;
}

// Magnitudes from below f16's least scale to above its largest.
std::vector<std::vector<float>> random_blocks() {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> out;
  for (int exponent = -40; exponent <= 30; ++exponent) {
    for (int n = 0; n < 50; ++n) {
      std::vector<float> x(32);
      for (float& value : x) value = std::ldexp(normal(random), exponent);
      out.push_back(x);
    }
  }
  return out;
}

TEST(KvQ8, CpuAndReferenceGiveEqualBlocks) {
  for (const std::vector<float>& x : random_blocks()) expect_equal(x);
}

TEST(KvQ8, CpuAndReferenceAgreeOnExtremes) {
  const float extremes[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::denorm_min(),
                            0x1p-24f * 127,
                            0x1p-25f * 127,
                            65504.0f * 127,
                            65520.0f * 127,
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (const float extreme : extremes) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const int at : {0, 17, 31}) {
        for (const float others : {0.0f, 1.0f, -3e-6f}) {
          std::vector<float> x(32, others);
          x[static_cast<size_t>(at)] = sign * extreme;
          expect_equal(x);
        }
      }
    }
  }
}

TEST(KvQ8, CodesAreTheNearestOfTheStoredScale) {
  int n = 0;
  for (const std::vector<float>& x : random_blocks()) {
    const Block block = by_cpu(x);
    const double d = f16_to_f32(block.scale);
    if (!(d >= 0x1p-14)) continue;  // below, rounding the scale may push values past code 127
    ++n;
    for (int i = 0; i < 32; ++i) {
      ASSERT_LE(std::fabs(x[i] - d * block.codes[i]), d * 0.50001) << x[i];
    }
  }
  EXPECT_GT(n, 500);
}

// What cannot be stored must not look like numbers.
TEST(KvQ8, NonFiniteAndTooLargeValuesGiveANanScale) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), 65520.0f * 127}) {
    for (const int at : {0, 31}) {
      std::vector<float> x(32, 1.0f);
      x[static_cast<size_t>(at)] = -bad;
      for (const Block& block : {by_cpu(x), by_reference(x)}) {
        EXPECT_EQ(block.scale, 0x7e00) << bad;
        for (const int8_t code : block.codes) EXPECT_EQ(code, 0);
      }
    }
  }
}

}  // namespace
}  // namespace fathom

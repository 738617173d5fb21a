// SPDX-License-Identifier: Apache-2.0
// The caches of codes: the CPU's quantiser and the reference's give the same codes and scales, and
// those are the nearest that the stored scale allows.
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

struct Head {
  float scale;
  std::vector<uint8_t> codes;
};

Head fp8_by_cpu(const std::vector<float>& x) {
  Head out{0, std::vector<uint8_t>(x.size())};
  quantize_kv_e4m3(x.data(), static_cast<int>(x.size()), out.codes.data(), out.scale);
  return out;
}

// A value tile: the codes of token 0 first, its scale behind those of 16 tokens.
Head fp8_by_reference(const std::vector<float>& x) {
  const KvGeometry geometry{KvFormat::fp8_e4m3, 1, static_cast<int>(x.size()), kKvTileTokens};
  std::vector<std::byte> tile(static_cast<size_t>(geometry.page_bytes()));
  const KvLayerView view{geometry, tile.data(), tile.data()};
  const int32_t page = 0;
  kv_store_ref(view, KvPart::value, &page, 0, 0, std::vector<double>(x.begin(), x.end()).data());
  Head out{0, std::vector<uint8_t>(x.size())};
  std::memcpy(out.codes.data(), tile.data(), x.size());
  std::memcpy(&out.scale, tile.data() + x.size() * kKvTileTokens, sizeof out.scale);
  return out;
}

// Heads of 80 whose sizes are those of all of f32.
std::vector<std::vector<float>> random_heads() {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> out;
  for (int exponent = -149; exponent <= 125; ++exponent) {
    std::vector<float> x(80);
    for (float& value : x) value = std::ldexp(normal(random), exponent);
    out.push_back(x);
  }
  return out;
}

TEST(KvFp8, CpuAndReferenceGiveEqualHeads) {
  std::vector<std::vector<float>> heads = random_heads();
  for (const float extreme :
       {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(),
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const float others : {0.0f, 1.0f, -3e-6f}) {
      heads.push_back(std::vector<float>(80, others));
      heads.back()[33] = -extreme;
    }
  }
  for (const std::vector<float>& x : heads) {
    const Head cpu = fp8_by_cpu(x), reference = fp8_by_reference(x);
    ASSERT_EQ(std::isnan(cpu.scale), std::isnan(reference.scale));
    if (!std::isnan(cpu.scale)) {
      ASSERT_EQ(cpu.scale, reference.scale) << x[0];
    }
    ASSERT_EQ(cpu.codes, reference.codes) << x[0];
  }
}

// Half a unit of the code's last place: 2^-4 of the value, of small ones 2^-10 of the scale.
TEST(KvFp8, CodesAreNearTheValues) {
  for (const std::vector<float>& x : random_heads()) {
    const Head head = fp8_by_cpu(x);
    if (head.scale < 0x1p-126f) continue;
    for (size_t i = 0; i < x.size(); ++i) {
      const double stored = static_cast<double>(head.scale) * e4m3_to_f32(head.codes[i]);
      const double bound = std::max(std::fabs(x[i]) * 0x1p-4, head.scale * 0x1p-10);
      ASSERT_LE(std::fabs(x[i] - stored), bound * 1.00001) << x[i];
    }
  }
}

TEST(KvFp8, NonFiniteValuesGiveANanScale) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0, 79}) {
      std::vector<float> x(80, 1.0f);
      x[at] = -bad;
      for (const Head& head : {fp8_by_cpu(x), fp8_by_reference(x)}) {
        EXPECT_TRUE(std::isnan(head.scale)) << bad;
        EXPECT_EQ(head.codes, std::vector<uint8_t>(80, 0)) << "no code is NaN";
      }
    }
  }
}

}  // namespace
}  // namespace fathom

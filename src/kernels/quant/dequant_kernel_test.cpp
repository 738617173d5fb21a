// SPDX-License-Identifier: Apache-2.0
// The device's way into a block, run on the host: every value of random and extreme blocks has the
// bits of the reference.
#include "kernels/quant/dequant_kernel.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quant/cases.hpp"
#include "kernels/quant/dequant_ref.hpp"

namespace fathom::quant {
namespace {

template <class Block>
float value(const Block& block, int i) {
  if constexpr (kBlockElems<Block> == 1) {
    return float_value(block);
  } else {
    const QuantValue v = quant_value(block, i);
    const float product = v.scale * v.code;
    return product + v.add;
  }
}

// NaNs are alike whatever their sign and payload: processors differ there, a GPU has only one.
testing::AssertionResult same(float got, float expected) {
  if (std::isnan(got) && std::isnan(expected)) return testing::AssertionSuccess();
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << got << ", expected " << expected;
}

template <class Block>
void expect_reference(DType type, const std::vector<std::byte>& bytes) {
  const DTypeInfo& info = dtype_info(type);
  ASSERT_EQ(sizeof(Block), static_cast<size_t>(info.block_bytes));
  ASSERT_EQ(kBlockElems<Block>, info.block_elems);
  const int64_t n_blocks = static_cast<int64_t>(bytes.size() / sizeof(Block));
  std::vector<float> expected(static_cast<size_t>(n_blocks * info.block_elems));
  dequantize_row(type, bytes.data(), expected.data(), n_blocks * info.block_elems);
  for (int64_t block = 0; block < n_blocks; ++block) {
    Block b;
    std::memcpy(&b, bytes.data() + block * static_cast<int64_t>(sizeof b), sizeof b);
    for (int i = 0; i < info.block_elems; ++i) {
      ASSERT_TRUE(same(value(b, i), expected[static_cast<size_t>(block * info.block_elems + i)]))
          << "value " << i << " of block " << block;
    }
  }
}

// Every byte random, and scales that are zero, subnormal, the largest, infinite and NaN.
std::vector<std::byte> extreme_blocks(DType type) {
  const size_t block_bytes = static_cast<size_t>(dtype_info(type).block_bytes);
  std::mt19937_64 random(17);
  std::vector<std::byte> out(400 * block_bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff,
                             0xfbff, 0x7c00, 0xfc00, 0x7e01};
  for (size_t i = 0; i < 300; ++i) {
    std::byte* block = out.data() + i * block_bytes;
    if (i % 4 == 0) std::memset(block, i % 8 ? 0xff : 0, block_bytes);
    if (block_bytes <= 4) continue;
    if (type == DType::mxfp4) {
      block[0] = static_cast<std::byte>(i);
      continue;
    }
    const ScaleOffsets at = scale_offsets(type);
    std::memcpy(block + at.first, &scales[i % 9], 2);
    if (at.second >= 0) std::memcpy(block + at.second, &scales[i / 9 % 9], 2);
  }
  return out;
}

template <class Block>
void expect_reference(DType type) {
  SCOPED_TRACE(dtype_info(type).name);
  expect_reference<Block>(type, random_weights(type, 50, 256, 5));
  expect_reference<Block>(type, extreme_blocks(type));
}

TEST(DequantKernel, HasTheBitsOfTheReferenceInEveryFormat) {
  expect_reference<BlockF32>(DType::f32);
  expect_reference<BlockF16>(DType::f16);
  expect_reference<BlockBF16>(DType::bf16);
  expect_reference<BlockQ4_0>(DType::q4_0);
  expect_reference<BlockQ4_1>(DType::q4_1);
  expect_reference<BlockQ5_0>(DType::q5_0);
  expect_reference<BlockQ5_1>(DType::q5_1);
  expect_reference<BlockQ8_0>(DType::q8_0);
  expect_reference<BlockQ2_K>(DType::q2_k);
  expect_reference<BlockQ3_K>(DType::q3_k);
  expect_reference<BlockQ4_K>(DType::q4_k);
  expect_reference<BlockQ5_K>(DType::q5_k);
  expect_reference<BlockQ6_K>(DType::q6_k);
  expect_reference<BlockIQ4_NL>(DType::iq4_nl);
  expect_reference<BlockIQ4_XS>(DType::iq4_xs);
  expect_reference<BlockMXFP4>(DType::mxfp4);
}

}  // namespace
}  // namespace fathom::quant

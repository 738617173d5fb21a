// SPDX-License-Identifier: Apache-2.0
// Generated blocks have the promised moments in every format, are finite, and do not depend on
// how the range is cut.
#include "convert/random_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "kernels/quant/dequant_ref.hpp"

namespace fathom::convert {
namespace {

class RandomBlocks : public testing::TestWithParam<DTypeInfo> {};

std::vector<std::byte> generate(const DTypeInfo& info, uint64_t key, double sigma, int64_t first,
                                int64_t n_blocks) {
  std::vector<std::byte> out(static_cast<size_t>(n_blocks * info.block_bytes));
  BlockGenerator(info.type, key, sigma).fill(first, n_blocks, out.data());
  return out;
}

TEST_P(RandomBlocks, HaveMeanZeroAndTheWantedDeviation) {
  const DTypeInfo info = GetParam();
  constexpr int64_t kElems = 1 << 20;
  for (const double sigma : {1.0, 0.017, 0.0021}) {
    const auto blocks = generate(info, 7, sigma, 0, kElems / info.block_elems);
    std::vector<float> w(kElems);
    quant::dequantize_row(info.type, blocks.data(), w.data(), kElems);
    double sum = 0, squares = 0, peak = 0;
    for (const float value : w) {
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
      squares += static_cast<double>(value) * value;
      peak = std::max(peak, std::fabs(static_cast<double>(value)));
    }
    // Scales in f16 subnormals (Q6_K at the smallest sigma) cost a few per mille.
    EXPECT_NEAR(std::sqrt(squares / kElems) / sigma, 1.0, 0.02) << "sigma " << sigma;
    EXPECT_NEAR(sum / kElems / sigma, 0.0, 0.02) << "sigma " << sigma;
    EXPECT_LT(peak, 8 * sigma);
  }
}

TEST_P(RandomBlocks, DoNotDependOnTheCut) {
  const DTypeInfo info = GetParam();
  const auto whole = generate(info, 99, 0.5, 0, 103);
  std::vector<std::byte> pieces;
  int64_t first = 0;
  for (const int64_t n : {1, 2, 5, 31, 64}) {
    const auto piece = generate(info, 99, 0.5, first, n);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
    first += n;
  }
  EXPECT_EQ(pieces, whole);
  EXPECT_NE(generate(info, 100, 0.5, 0, 103), whole) << "the key matters";
}

INSTANTIATE_TEST_SUITE_P(AllTypes, RandomBlocks, testing::ValuesIn(all_dtypes()),
                         [](const auto& param) { return param.param.name; });

TEST(WordStream, KeysOfTensorsAndSeedsDiffer) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* name : {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight"}) {
      keys.insert(tensor_key(seed, name));
    }
  }
  EXPECT_EQ(keys.size(), 30u);
}

}  // namespace
}  // namespace fathom::convert

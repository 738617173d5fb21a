// SPDX-License-Identifier: Apache-2.0
// The attention oracle on cases that can be read by eye.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/attn/attn.hpp"
#include "kernels/common/kv_ref.hpp"
#include "tensor/half.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

// One KV head, two query heads, head dim 16, pages of 16 tokens in reversed order.
class AttnRef : public testing::TestWithParam<KvFormat> {
 protected:
  static constexpr int kDim = 32, kTokens = 40;
  AttnRef() : geometry_{GetParam(), 1, kDim, 16}, memory_(6 * geometry_.page_bytes()) {
    kv_ = {geometry_, memory_.data(), memory_.data() + 3 * geometry_.page_bytes()};
    // Memory that was never written holds NaN.
    for (std::byte& byte : memory_) byte = std::byte{0xff};
  }

  void store(int64_t token, const std::vector<double>& key, const std::vector<double>& value) {
    kv_store_ref(kv_, KvPart::key, pages_, 0, token, key.data());
    kv_store_ref(kv_, KvPart::value, pages_, 0, token, value.data());
  }
  std::vector<float> attend(const std::vector<float>& q, int32_t pos, float scale) {
    const int32_t slot = 0;
    const StepState step{1, 0, 3, nullptr, &pos, &slot, nullptr, pages_};
    std::vector<float> out(q.size());
    ExecContext ctx;
    attn_ref(ctx, {{2, 1, kDim, scale, kv_, 1, 48}, &step, q.data(), out.data()});
    return out;
  }
  // q8_0 keeps 1 as 127 times an f16 of 1/127; fp8_e4m3 as 448 times an f32 of 1/448.
  static double tolerance() { return GetParam() == KvFormat::q8_0 ? 1e-3 : 1e-6; }
  static std::vector<double> unit(int dim, double size = 1) {
    std::vector<double> out(kDim, 0.0);
    out[dim] = size;
    return out;
  }

  const int32_t pages_[3] = {2, 1, 0};
  KvGeometry geometry_;
  std::vector<std::byte> memory_;
  KvLayerView kv_;
};

// A score of 1000 above all others: the output is that token's value.
TEST_P(AttnRef, OneHotSoftmaxPicksOneValue) {
  for (int t = 0; t < kTokens; ++t) store(t, unit(t % kDim), unit((t * 7) % kDim, 1.0));
  std::vector<float> q(2 * kDim, 0.0f);
  q[20] = 1;         // head 0 looks for key 20
  q[kDim + 31] = 1;  // head 1 for key 31
  const std::vector<float> out = attend(q, 31, 1000.0f);
  for (int dim = 0; dim < kDim; ++dim) {
    EXPECT_NEAR(out[dim], dim == (20 * 7) % kDim ? 1 : 0, tolerance());
    EXPECT_NEAR(out[kDim + dim], dim == (31 * 7) % kDim ? 1 : 0, tolerance());
  }
}

// Equal scores: the mean of the values seen so far, of no later one.
TEST_P(AttnRef, EqualScoresGiveTheMeanOfThePast) {
  for (int t = 0; t < kTokens; ++t) store(t, unit(0), std::vector<double>(kDim, t < 17 ? t : 1e4));
  const std::vector<float> out = attend(std::vector<float>(2 * kDim, 0.0f), 16, 1.0f);
  for (const float value : out) EXPECT_NEAR(value, 8.0, 10 * tolerance());
}

// Two tokens whose scores differ by ln 3: weights 1/4 and 3/4.
TEST_P(AttnRef, WeightsByHand) {
  store(0, unit(0), unit(1));
  store(1, unit(2), unit(3));
  std::vector<float> q(2 * kDim, 0.0f);
  q[2] = std::log(3.0f);
  const std::vector<float> out = attend(q, 1, 1.0f);
  EXPECT_NEAR(out[1], 0.25, tolerance());
  EXPECT_NEAR(out[3], 0.75, tolerance());
  EXPECT_NEAR(out[kDim + 1], 0.5, tolerance());
}

INSTANTIATE_TEST_SUITE_P(All, AttnRef, testing::ValuesIn(test::all_kv_formats()),
                         [](const auto& param) { return test::kv_test_name(param.param); });

TEST(AttnCost, CountsEachCachedTokenOnce) {
  AttnArgs::Static s{4, 2, 64, 0.125f, {{KvFormat::f16, 2, 64, 16}, nullptr, nullptr}, 8, 100};
  // Two sequences of 10 and 20 tokens, one new row each: 30 tokens of 2*2*64*2 bytes.
  const Cost c = cost(s, StepShape{2, 2, 30, 30});
  EXPECT_EQ(c.kv_bytes, 30 * 512);
  EXPECT_EQ(c.flops_useful, 4 * 30 * 256);
}

}  // namespace
}  // namespace fathom

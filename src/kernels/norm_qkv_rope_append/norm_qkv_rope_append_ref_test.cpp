// SPDX-License-Identifier: Apache-2.0
// The front of an attention block, by hand: identity matrices, so that what comes out is the
// normalised input, turned.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/common/kv_ref.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"

namespace fathom {
namespace {

constexpr int kDim = 16;

class NormQkvRef : public testing::TestWithParam<RopePairs> {
 protected:
  NormQkvRef() : identity_(kDim * kDim, 0.0f), norm_(kDim, 1.0f), bias_(kDim, 0.0f) {
    for (int i = 0; i < kDim; ++i) identity_[i * kDim + i] = 1;
    memory_.resize(2 * geometry_.page_bytes());
    PackedMatrix w{reinterpret_cast<const std::byte*>(identity_.data())};
    w.rows = w.cols = kDim;
    w.file_bytes = w.packed_bytes = kDim * kDim * 4;
    s_ = {.d_model = kDim,
          .n_heads = 1,
          .n_kv_heads = 1,
          .head_dim = kDim,
          .rope_dim = 8,
          .pairs = GetParam(),
          .rms_eps = 0,
          .norm = norm_.data(),
          .q = w,
          .k = w,
          .v = w,
          .q_bias = nullptr,
          .k_bias = nullptr,
          .v_bias = nullptr,
          .q_norm = nullptr,
          .k_norm = nullptr,
          .kv = {geometry_, memory_.data(), memory_.data() + geometry_.page_bytes()},
          .max_rows = 1};
  }
  // q of one row at position 5; key and value are left in k_ and v_.
  std::vector<float> run(const std::vector<float>& x, const std::vector<float>& rope) {
    const int32_t pos = 5, slot = 0, page = 0;
    const StepState step{1, 0, 1, nullptr, &pos, &slot, nullptr, &page};
    std::vector<float> q(kDim);
    ExecContext ctx;
    norm_qkv_rope_append_ref(ctx, {s_, &step, x.data(), rope.data(), q.data()});
    k_.resize(kDim);
    v_.resize(kDim);
    kv_load_ref(s_.kv, KvPart::key, &page, 0, pos, k_.data());
    kv_load_ref(s_.kv, KvPart::value, &page, 0, pos, v_.data());
    return q;
  }

  KvGeometry geometry_{KvFormat::f32, 1, kDim, 16};
  std::vector<float> identity_, norm_, bias_;
  std::vector<std::byte> memory_;
  std::vector<double> k_, v_;
  NormQkvRopeAppendArgs::Static s_;
};

// A quarter turn of every pair: (a, b) becomes (-b, a); dims from rope_dim on stay.
TEST_P(NormQkvRef, QuarterTurnMovesThePartner) {
  std::vector<float> x(kDim), quarter{0, 1, 0, 1, 0, 1, 0, 1};
  double sum = 0;
  for (int i = 0; i < kDim; ++i) {
    x[i] = static_cast<float>(i + 1);
    sum += x[i] * x[i];
  }
  const double rms = std::sqrt(sum / kDim);
  const std::vector<float> q = run(x, quarter);
  const bool interleaved = GetParam() == RopePairs::interleaved;
  for (int i = 0; i < kDim; ++i) {
    double expected = x[i];
    if (i < 8 && interleaved) expected = i % 2 == 0 ? -x[i + 1] : x[i - 1];
    if (i < 8 && !interleaved) expected = i < 4 ? -x[i + 4] : x[i - 4];
    EXPECT_NEAR(q[i], expected / rms, 1e-6) << i;
    EXPECT_NEAR(k_[i], expected / rms, 1e-6) << i;
    EXPECT_NEAR(v_[i], x[i] / rms, 1e-6) << i;
  }
}

// The bias enters before the norm of the head, the norm before the rotation.
TEST_P(NormQkvRef, BiasThenHeadNormThenRotation) {
  for (int i = 0; i < kDim; ++i) bias_[i] = i == 0 ? 2.0f : 0.0f;
  s_.q_bias = bias_.data();
  std::vector<float> head_norm(kDim, 1.0f);
  head_norm[0] = 3;
  s_.q_norm = head_norm.data();
  const std::vector<float> half_turn{-1, 0, -1, 0, -1, 0, -1, 0};
  const std::vector<float> q = run(std::vector<float>(kDim, 1.0f), half_turn);
  // After the bias: 3, 1, 1, ...; mean square (9 + 15)/16 = 1.5.
  EXPECT_NEAR(q[0], -3 * 3 / std::sqrt(1.5), 1e-6);
  EXPECT_NEAR(q[1], -1 / std::sqrt(1.5), 1e-6);
  EXPECT_NEAR(q[8], 1 / std::sqrt(1.5), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Pairs, NormQkvRef,
                         testing::Values(RopePairs::interleaved, RopePairs::half_split));

}  // namespace
}  // namespace fathom

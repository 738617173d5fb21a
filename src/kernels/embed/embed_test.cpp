// SPDX-License-Identifier: Apache-2.0
// The embedding lookup and the rotary angles of every table type against the reference, and by
// hand.
#include "kernels/embed/embed.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr int64_t kVocab = 300;
constexpr int kRopeDim = 20;

struct EmbedProblem {
  EmbedArgs args{};
  StepState step{};
  std::vector<std::byte> table;
  std::vector<double> inv_freq;
  std::vector<int32_t> token, pos;

  EmbedProblem(DType type, int64_t d_model)
      : table(quant::random_weights(type, kVocab, d_model, 31)) {
    for (int i = 0; i < kRopeDim / 2; ++i) inv_freq.push_back(std::pow(1e4, -2.0 * i / kRopeDim));
    for (int i = 0; i < kMaxOpRows; ++i) {
      token.push_back((i * 37 + 299) % kVocab);
      pos.push_back(i * 1001);
    }
    args.s = {table.data(), type, kVocab, d_model, inv_freq.data(), kRopeDim, 1.1f};
    step.token = token.data();
    step.pos = pos.data();
    args.step = &step;
  }
  // Of each row its embedding, then its angles.
  template <class Op>
  std::vector<float> run(int n_rows, const Op& op) {
    std::vector<float> x = poisoned(n_rows * args.s.d_model), rope = poisoned(n_rows * kRopeDim);
    step.n_rows = n_rows;
    args.x = x.data();
    args.rope = rope.data();
    op(args);
    std::vector<float> out;
    for (int row = 0; row < n_rows; ++row) {
      out.insert(out.end(), x.begin() + row * args.s.d_model,
                 x.begin() + (row + 1) * args.s.d_model);
      out.insert(out.end(), rope.begin() + row * kRopeDim, rope.begin() + (row + 1) * kRopeDim);
    }
    return out;
  }
};

class Embed : public testing::TestWithParam<DType> {};

TEST_P(Embed, EqualsTheReference) {
  const int64_t d_model = op_cols(GetParam());
  EmbedProblem problem(GetParam(), d_model);
  const std::vector<float> expected = problem.run(kMaxOpRows, [](const EmbedArgs& args) {
    ExecContext ctx;
    embed_ref(ctx, args);
  });
  expect_one_result(expected, d_model + kRopeDim, kEpsilonF32,
                    [&](const CpuKernels& isa, int threads, int n_rows) {
                      return problem.run(n_rows, [&](const EmbedArgs& args) {
                        run_cpu_op(embed_cpu, args, isa, threads, 0);
                      });
                    });
}

TEST_P(Embed, RefusesTokensOutsideTheTable) {
  EmbedProblem problem(GetParam(), op_cols(GetParam()));
  for (const int32_t token : {-1, static_cast<int32_t>(kVocab)}) {
    for (const int n_rows : {1, 17}) {
      problem.token[n_rows - 1] = token;
      EXPECT_THROW(problem.run(n_rows,
                               [&](const EmbedArgs& args) {
                                 run_cpu_op(embed_cpu, args, select_cpu_kernels("scalar"), 3, 0);
                               }),
                   Error);
      problem.token[n_rows - 1] = 0;
    }
  }
}

std::vector<DType> every_type() {
  std::vector<DType> out;
  for (const DTypeInfo& info : all_dtypes()) out.push_back(info.type);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Tables, Embed, testing::ValuesIn(every_type()),
                         [](const auto& test) { return dtype_info(test.param).name; });

// Position 2 at a frequency of a quarter pi is a quarter turn, 1.5 long.
TEST(EmbedByHand, QuarterTurn) {
  const float table[] = {1, 2, 3, 4};
  const double quarter_pi = std::atan(1.0);
  const int32_t token = 1, pos = 2;
  StepState step{};
  step.n_rows = 1;
  step.token = &token;
  step.pos = &pos;
  float x[2], rope[2];
  const EmbedArgs args{
      {reinterpret_cast<const std::byte*>(table), DType::f32, 2, 2, &quarter_pi, 2, 1.5f},
      &step,
      x,
      rope};
  run_cpu_op(embed_cpu, args, select_cpu_kernels("scalar"), 1, 0);
  EXPECT_EQ(x[0], 3);
  EXPECT_EQ(x[1], 4);
  EXPECT_NEAR(rope[0], 0, 1e-7);
  EXPECT_EQ(rope[1], 1.5f);
}

}  // namespace
}  // namespace fathom

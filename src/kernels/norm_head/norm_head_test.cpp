// SPDX-License-Identifier: Apache-2.0
// Logits of chosen rows on every instruction set, thread count and number of rows: with f32
// activations against the reference, else against the formula on the same int8 inputs.
#include "kernels/norm_head/norm_head.hpp"

#include <gtest/gtest.h>

#include "kernels/quant/linear_ref.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr float kEps = 1e-5f;
constexpr int64_t kVocab = 203;

class NormHead : public testing::TestWithParam<std::tuple<DType, Activations>> {};

TEST_P(NormHead, EqualsTheReference) {
  const auto [type, mode] = GetParam();
  const int64_t d_model = op_cols(type);
  const OpMatrix head(type, kVocab, d_model, mode, 21);
  const std::vector<float> norm = uniform_values(d_model, 0.5f, 1.5f, 22);
  // Every second row, from the second on, is wanted; the others are never read.
  const std::vector<float> wanted = quant::random_activations(kMaxOpRows * d_model, 23);
  std::vector<float> x = poisoned(2 * kMaxOpRows * d_model);
  std::vector<int32_t> out_row;
  for (int i = 0; i < kMaxOpRows; ++i) {
    out_row.push_back(2 * i + 1);
    std::copy_n(wanted.begin() + i * d_model, d_model, x.begin() + out_row[i] * d_model);
  }
  const NormHeadArgs::Static s{d_model, kVocab, kEps, norm.data(), head.cpu, kMaxOpRows};
  StepState step{};
  step.n_rows = 2 * kMaxOpRows;
  step.n_out = kMaxOpRows;
  step.out_row = out_row.data();
  std::vector<float> expected = poisoned(kMaxOpRows * kVocab);
  if (mode == Activations::f32) {
    NormHeadArgs::Static reference = s;
    reference.head = head.reference;
    ExecContext ctx;
    norm_head_ref(ctx, {reference, &step, x.data(), expected.data()});
  } else {
    const std::vector<float> seen = seen_by(head.cpu, rms_norm_rows(wanted, norm, kEps));
    const std::vector<double> logits =
        quant::linear_ref(nullptr, head.reference, {seen.begin(), seen.end()}, kMaxOpRows);
    expected.assign(logits.begin(), logits.end());
  }
  expect_one_result(expected, kVocab, dot_tolerance(d_model),
                    [&](const CpuKernels& isa, int threads, int n_rows) {
                      step.n_out = n_rows;
                      std::vector<float> logits = poisoned(n_rows * kVocab);
                      run_cpu_op(norm_head_cpu, NormHeadArgs{s, &step, x.data(), logits.data()},
                                 isa, threads, workspace_bytes_cpu(s));
                      return logits;
                    });
}

INSTANTIATE_TEST_SUITE_P(Formats, NormHead,
                         testing::Combine(testing::ValuesIn(op_formats()),
                                          testing::Values(Activations::f32, Activations::int8)),
                         [](const auto& test) {
                           return std::string(dtype_info(std::get<0>(test.param)).name) + "_" +
                                  mode_name(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace fathom

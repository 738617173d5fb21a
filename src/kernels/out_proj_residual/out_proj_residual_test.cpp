// SPDX-License-Identifier: Apache-2.0
// The projection on every instruction set, thread count and number of rows against the reference:
// exactly with f32 activations, and on the same int8 activations otherwise.
#include "kernels/out_proj_residual/out_proj_residual.hpp"

#include <gtest/gtest.h>

#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;

class OutProjResidual : public testing::TestWithParam<std::tuple<DType, Activations, bool>> {};

TEST_P(OutProjResidual, EqualsTheReference) {
  const auto [type, mode, with_bias] = GetParam();
  for (const int64_t outputs : {16, 75}) {
    const int64_t cols = op_cols(type);
    const OpMatrix w(type, outputs, cols, mode, 3);
    const std::vector<float> bias = uniform_values(outputs, -1, 1, 4);
    const std::vector<float> a = quant::random_activations(kMaxOpRows * cols, 5);
    const std::vector<float> residual = quant::random_activations(kMaxOpRows * outputs, 6);
    const OutProjResidualArgs::Static s{w.cpu, with_bias ? bias.data() : nullptr, kMaxOpRows};
    StepState step{};

    const std::vector<float> seen = seen_by(w.cpu, a);
    std::vector<float> expected = residual;
    OutProjResidualArgs::Static reference = s;
    reference.w = w.reference;
    step.n_rows = kMaxOpRows;
    ExecContext ctx;
    out_proj_residual_ref(ctx, {reference, &step, seen.data(), expected.data()});
    ASSERT_FALSE(close(expected, residual, 1e-3)) << "the product does not show";

    expect_one_result(expected, outputs, dot_tolerance(cols),
                      [&](const CpuKernels& isa, int threads, int n_rows) {
                        step.n_rows = n_rows;
                        std::vector<float> x(residual.begin(), residual.begin() + n_rows * outputs);
                        run_cpu_op(out_proj_residual_cpu,
                                   OutProjResidualArgs{s, &step, a.data(), x.data()}, isa, threads,
                                   workspace_bytes_cpu(s));
                        return x;
                      });
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, OutProjResidual,
                         testing::Combine(testing::ValuesIn(op_formats()),
                                          testing::Values(Activations::f32, Activations::int8),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::string(dtype_info(std::get<0>(test.param)).name) + "_" +
                                  mode_name(std::get<1>(test.param)) +
                                  (std::get<2>(test.param) ? "_bias" : "");
                         });

}  // namespace
}  // namespace fathom

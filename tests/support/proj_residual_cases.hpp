// SPDX-License-Identifier: Apache-2.0
// The test that out_proj_residual and down_proj_residual share: two ops, so that a profile tells
// them apart, of one formula. On every instruction set, thread count and number of rows the CPU
// equals the reference: exactly with f32 activations, and on the same int8 activations otherwise.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/support/op_cases.hpp"

namespace fathom::test {

using ProjResidualCase = std::tuple<DType, Activations, bool>;  // the last: with a bias

inline auto proj_residual_cases() {
  return testing::Combine(testing::ValuesIn(op_formats()),
                          testing::Values(Activations::f32, Activations::int8), testing::Bool());
}

inline std::string proj_residual_name(const testing::TestParamInfo<ProjResidualCase>& test) {
  const auto [type, mode, with_bias] = test.param;
  return std::string(dtype_info(type).name) + "_" + mode_name(mode) + (with_bias ? "_bias" : "");
}

template <class Args>
void expect_equals_reference(void (*cpu)(ExecContext&, const Args&),
                             void (*reference)(ExecContext&, const Args&),
                             const ProjResidualCase& test) {
  const auto [type, mode, with_bias] = test;
  for (const int64_t outputs : {16, 75}) {
    const int64_t cols = op_cols(type);
    const OpMatrix w(type, outputs, cols, mode, 3);
    const std::vector<float> bias = uniform_values(outputs, -1, 1, 4);
    const std::vector<float> a = quant::random_activations(kMaxOpRows * cols, 5);
    const std::vector<float> residual = quant::random_activations(kMaxOpRows * outputs, 6);
    const typename Args::Static s{w.cpu, with_bias ? bias.data() : nullptr, kMaxOpRows};
    StepState step{};

    const std::vector<float> seen = seen_by(w.cpu, a);
    std::vector<float> expected = residual;
    typename Args::Static of_file = s;
    of_file.w = w.reference;
    step.n_rows = kMaxOpRows;
    ExecContext ctx;
    reference(ctx, {of_file, &step, seen.data(), expected.data()});
    ASSERT_FALSE(close(expected, residual, 1e-3)) << "the product does not show";

    const auto run = [&](const CpuKernels& isa, int threads, int n_rows) {
      step.n_rows = n_rows;
      std::vector<float> x(residual.begin(), residual.begin() + n_rows * outputs);
      run_cpu_op(cpu, Args{s, &step, a.data(), x.data()}, isa, threads, workspace_bytes_cpu(s));
      return x;
    };
    expect_one_result(expected, outputs, dot_tolerance(cols), run);
  }
}

}  // namespace fathom::test

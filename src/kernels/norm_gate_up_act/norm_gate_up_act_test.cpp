// SPDX-License-Identifier: Apache-2.0
// The front of the feed-forward block on every instruction set, thread count and number of rows:
// with f32 activations against the reference, else against the formula on the same int8 inputs.
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"

#include <gtest/gtest.h>

#include "kernels/quant/linear_ref.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;

struct Mix {
  DType gate, up;
};
constexpr Mix kMixes[] = {
    {DType::f32, DType::f32},   {DType::f16, DType::f16},   {DType::q4_1, DType::q4_1},
    {DType::q8_0, DType::q8_0}, {DType::q4_k, DType::q4_k}, {DType::q6_k, DType::q6_k},
    {DType::q4_k, DType::q6_k}, {DType::f16, DType::q8_0},  {DType::q5_1, DType::bf16}};

class NormGateUpAct : public testing::TestWithParam<std::tuple<Mix, Activations>> {
 protected:
  static constexpr float kEps = 1e-5f;

  void sweep(int64_t d_ff) {
    const auto [mix, mode] = GetParam();
    const int64_t d_model = std::max(op_cols(mix.gate), op_cols(mix.up));
    const OpMatrix gate(mix.gate, d_ff, d_model, mode, 11), up(mix.up, d_ff, d_model, mode, 12);
    const std::vector<float> norm = uniform_values(d_model, 0.1f, 0.3f, 13);
    const std::vector<float> x = quant::random_activations(kMaxOpRows * d_model, 14);
    const NormGateUpActArgs::Static s{d_model,  d_ff,   kEps,      norm.data(),
                                      gate.cpu, up.cpu, kMaxOpRows};
    StepState step{};
    step.n_rows = kMaxOpRows;
    std::vector<float> expected = poisoned(kMaxOpRows * d_ff);
    if (mode == Activations::f32) {
      NormGateUpActArgs::Static reference = s;
      reference.gate = gate.reference;
      reference.up = up.reference;
      ExecContext ctx;
      norm_gate_up_act_ref(ctx, {reference, &step, x.data(), expected.data()});
    } else {
      const std::vector<float> normed = rms_norm_rows(x, norm, kEps);
      const std::vector<double> g = product(gate, normed), u = product(up, normed);
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<float>(g[i] / (1 + std::exp(-g[i])) * u[i]);
      }
    }
    expect_one_result(expected, d_ff, 2 * dot_tolerance(d_model),
                      [&](const CpuKernels& isa, int threads, int n_rows) {
                        step.n_rows = n_rows;
                        std::vector<float> h = poisoned(n_rows * d_ff);
                        run_cpu_op(norm_gate_up_act_cpu,
                                   NormGateUpActArgs{s, &step, x.data(), h.data()}, isa, threads,
                                   workspace_bytes_cpu(s));
                        return h;
                      });
  }

 private:
  static std::vector<double> product(const OpMatrix& w, const std::vector<float>& normed) {
    const std::vector<float> seen = seen_by(w.cpu, normed);
    return quant::linear_ref(nullptr, w.reference, {seen.begin(), seen.end()}, kMaxOpRows);
  }
};

TEST_P(NormGateUpAct, WholeRowGroups) { sweep(160); }
TEST_P(NormGateUpAct, OddWidth) { sweep(33); }

INSTANTIATE_TEST_SUITE_P(Formats, NormGateUpAct,
                         testing::Combine(testing::ValuesIn(kMixes),
                                          testing::Values(Activations::f32, Activations::int8)),
                         [](const auto& test) {
                           const Mix mix = std::get<0>(test.param);
                           return std::string(dtype_info(mix.gate).name) + "_" +
                                  dtype_info(mix.up).name + "_" +
                                  mode_name(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace fathom

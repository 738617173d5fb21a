// SPDX-License-Identifier: Apache-2.0
// Products of many rows on the GPU: each format equals the exact product of the activations that it
// saw, and the bits of a row depend on its own activations alone: not on the number of rows, its
// place among them, or how the matrix was cut. On a GPU without these kernels the others answer,
// and the same holds with their tolerance.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/out_proj_residual/out_proj_residual.hpp"
#include "tests/support/cuda_matrix_fixture.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr float kEps = 1e-5f;
constexpr int kMostRows = 515;
// f16 activations, and scales and values of weights rounded to f16; bf16 weights are exact, their
// activations have 16 bits.
double tolerance(DType type) { return type == DType::bf16 ? 5e-5 : 1.5e-3; }

// The exact product of some rows with the matrix.
std::vector<float> product(const CudaMatrix& w, const std::vector<float>& rows, int n_rows) {
  std::vector<float> out(static_cast<size_t>(n_rows * w.tiles.rows), 0.0f);
  StepState step{};
  step.n_rows = n_rows;
  ExecContext host;
  host.pool = &op_pool(3);
  out_proj_residual_ref(host, {{w.reference, nullptr, n_rows}, &step, rows.data(), out.data()});
  return out;
}

class CudaMatmulPrefill : public CudaMatrixTest {
 protected:
  void SetUp() override {
    CudaMatrixTest::SetUp();
    // Those of int8 activations.
    if (!IsSkipped() && info().isa != "sm_90") tolerance_ = 2e-2;
  }
  double tolerance_ = tolerance(GetParam());
};

TEST_P(CudaMatmulPrefill, EqualsTheExactProductAtEveryNumberOfRows) {
  const DType type = GetParam();
  const int64_t block = dtype_info(type).block_elems == 256 ? 256 : 32;
  struct Shape {
    int64_t outputs, cols;
    int n_rows;
  };
  // The last has more pieces than twice the blocks of a grid, however they are cut.
  for (const Shape shape :
       {Shape{16, block, kMostRows}, Shape{75, 5 * block, kMostRows}, Shape{304, 19 * block, 200},
        Shape{33, 18944, 130}, Shape{7500, block, kMostRows}}) {
    SCOPED_TRACE(std::to_string(shape.outputs) + " x " + std::to_string(shape.cols));
    const CudaMatrix w(type, shape.outputs, shape.cols, 3);
    const std::vector<float> a = quant::random_activations(shape.n_rows * shape.cols, 5);
    const std::vector<float> residual = quant::random_activations(shape.n_rows * shape.outputs, 6);
    const std::vector<float> bias = uniform_values(shape.outputs, -1, 1, 4);
    std::vector<float> expected = product(w, a, shape.n_rows);
    const DeviceArray<float> device_bias = upload(bias), device_a = upload(a);
    const DownProjResidualArgs::Static s{on_device(w), device_bias.get(), shape.n_rows};
    use_workspace(workspace_bytes_cuda(s));
    const auto run = [&](int first, int n_rows) {
      const DeviceArray<float> x = upload(std::span(residual).subspan(
          static_cast<size_t>(first * shape.outputs), static_cast<size_t>(n_rows * shape.outputs)));
      StepState step{};
      step.n_rows = n_rows;
      down_proj_residual_cuda(ctx(), {s, &step, device_a.get() + first * shape.cols, x.get()});
      return download(x);
    };
    const std::vector<float> base = run(0, shape.n_rows);
    ASSERT_TRUE(meaningful(base, shape.outputs));
    std::vector<float> sums(base.size());
    for (size_t i = 0; i < base.size(); ++i) {
      sums[i] = base[i] - residual[i] - bias[i % static_cast<size_t>(shape.outputs)];
    }
    EXPECT_TRUE(close(sums, expected, tolerance_));
    for (const int n_rows : {33, 48, 64, 65, 127, 128, 200, 512}) {
      if (n_rows > shape.n_rows) continue;
      const std::vector<float> got = run(0, n_rows);
      EXPECT_TRUE(same_bits(got, std::span(base).first(got.size()))) << n_rows << " rows";
    }
    const int first = shape.n_rows - 49;  // in another place
    EXPECT_TRUE(same_bits(run(first, 49), std::span(base).subspan(first * shape.outputs)));
  }
}

// silu(gate) * up of normed rows, exact.
std::vector<float> gate_up_rows(const CudaMatrix& gate, const CudaMatrix& up,
                                const std::vector<float>& normed, int n_rows) {
  std::vector<float> out = product(gate, normed, n_rows);
  const std::vector<float> ups = product(up, normed, n_rows);
  for (size_t i = 0; i < out.size(); ++i) {
    const double g = out[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * ups[i]);
  }
  return out;
}

TEST_P(CudaMatmulPrefill, GateAndUp) {
  const int64_t d_ff = 200, cols = 768;
  const int n_rows = 130;
  const std::vector<float> x = quant::random_activations(n_rows * cols, 5);
  const std::vector<float> norm = uniform_values(cols, 0.5f, 1.5f, 6);
  const std::vector<float> normed = rms_norm_rows(x, norm, kEps);
  const DeviceArray<float> device_x = upload(x), device_norm = upload(norm);
  const CudaMatrix gate(GetParam(), d_ff, cols, 3);
  // A pair of two types is left to the kernel of few rows, with its tolerance.
  const DType other = GetParam() == DType::q8_0 ? DType::q4_0 : DType::q8_0;
  for (const DType up_type : {GetParam(), other}) {
    const CudaMatrix up(up_type, d_ff, cols, 4);
    const std::vector<float> expected = gate_up_rows(gate, up, normed, n_rows);
    const NormGateUpActArgs::Static s{
        cols, d_ff, kEps, device_norm.get(), on_device(gate), on_device(up), n_rows};
    use_workspace(workspace_bytes_cuda(s));
    std::vector<float> base;
    for (const int rows : {n_rows, 33, 100}) {
      const DeviceArray<float> h = poisoned<float>(rows * d_ff);
      StepState step{};
      step.n_rows = rows;
      norm_gate_up_act_cuda(ctx(), {s, &step, device_x.get(), h.get()});
      const std::vector<float> got = download(h);
      if (base.empty()) {
        base = got;
        ASSERT_TRUE(meaningful(got, d_ff));
        EXPECT_TRUE(close(got, expected, up_type == other ? 2e-2 : 2 * tolerance_));
      }
      EXPECT_TRUE(same_bits(got, std::span(base).first(got.size()))) << rows << " rows";
    }
  }
}

TEST_P(CudaMatmulPrefill, HeadTakesTheRowsThatWantLogits) {
  const int64_t cols = 512, vocab = 1003;
  const int n_rows = 70;
  const CudaMatrix head(GetParam(), vocab, cols, 3);
  const std::vector<float> x = quant::random_activations(n_rows * cols, 5);
  const std::vector<float> norm = uniform_values(cols, 0.5f, 1.5f, 6);
  const std::vector<float> all = product(head, rms_norm_rows(x, norm, kEps), n_rows);
  std::vector<int32_t> rows;
  std::vector<float> expected;
  for (int row = 0; row < n_rows; ++row) {
    if (row % 7 == 3) continue;
    rows.push_back(row);
    expected.insert(expected.end(), all.begin() + row * vocab, all.begin() + (row + 1) * vocab);
  }
  const DeviceArray<float> device_x = upload(x), device_norm = upload(norm);
  const DeviceArray<int32_t> device_rows = upload(rows);
  const NormHeadArgs::Static s{cols, vocab, kEps, device_norm.get(), on_device(head), n_rows};
  use_workspace(workspace_bytes_cuda(s));
  StepState step{};
  step.n_rows = n_rows;
  step.n_out = static_cast<int32_t>(rows.size());
  step.out_row = device_rows.get();
  const DeviceArray<float> logits = poisoned<float>(step.n_out * vocab);
  norm_head_cuda(ctx(), {s, &step, device_x.get(), logits.get()});
  EXPECT_TRUE(close(download(logits), expected, tolerance_));
}

// NaN and infinities in a row's activations show in that row, and only there; the largest and the
// smallest floats do no harm.
TEST_P(CudaMatmulPrefill, NonFiniteActivationsShow) {
  const int64_t cols = 512, outputs = 64;
  const int n_rows = 50;
  const CudaMatrix w(GetParam(), outputs, cols, 3);
  std::vector<float> a = quant::random_activations(n_rows * cols, 5);
  a[17 * cols + 77] = std::nanf("");
  a[30 * cols + 500] = -INFINITY;
  for (int64_t i = 0; i < cols; ++i) {
    a[40 * cols + i] *= 1e30f;
    a[41 * cols + i] *= 1e-30f;
    a[42 * cols + i] = 0.0f;
  }
  const DeviceArray<float> device_a = upload(a);
  const OutProjResidualArgs::Static s{on_device(w), nullptr, n_rows};
  use_workspace(workspace_bytes_cuda(s));
  StepState step{};
  step.n_rows = n_rows;
  const DeviceArray<float> x = upload(std::vector<float>(n_rows * outputs, 0.0f));
  out_proj_residual_cuda(ctx(), {s, &step, device_a.get(), x.get()});
  const std::vector<float> got = download(x);
  for (int row = 0; row < n_rows; ++row) {
    for (int64_t i = 0; i < outputs; ++i) {
      const float value = got[row * outputs + i];
      if (row == 17 || row == 30) {
        EXPECT_TRUE(std::isnan(value)) << row << ", " << i;
      } else {
        EXPECT_TRUE(std::isfinite(value)) << row << ", " << i;
      }
    }
  }
  const auto row_of = [&](const std::vector<float>& v, int row, int64_t width) {
    return std::vector<float>(v.begin() + row * width, v.begin() + (row + 1) * width);
  };
  for (const int row : {40, 41}) {
    EXPECT_TRUE(close(row_of(got, row, outputs), product(w, row_of(a, row, cols), 1), tolerance_))
        << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaMatmulPrefill, testing::ValuesIn(kCudaMatrixTypes),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

}  // namespace
}  // namespace fathom

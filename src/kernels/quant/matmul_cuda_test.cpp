// SPDX-License-Identifier: Apache-2.0
// The products on the GPU: each format equals the exact product of the int8 activations that it
// saw, and the bits of a row depend on its own activations alone: not on the number of rows, its
// place among them, or whether the activations were made once or by every block.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/out_proj_residual/out_proj_residual.hpp"
#include "tests/support/cuda_matrix_fixture.hpp"
#include "tests/support/emulated.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr float kEps = 1e-5f;
constexpr int kManyRows = 32;  // Hopper has other kernels for more

// Row groups of which every block of a grid takes three or more, on a GPU of up to 160
// multiprocessors with two blocks each.
constexpr int64_t kManyGroups = kIsEmulated ? 15 : 3 * 2 * 160;

bool is_real(DType type) { return type == DType::f16 || type == DType::bf16; }

// The rows as a product with weights of `type` sees them: int8 blocks, or sums of two 16-bit
// floats.
std::vector<float> as_seen(DType type, const std::vector<float>& rows) {
  if (!is_real(type)) {
    PackedMatrix any;
    any.packed_type = DType::q8_0;
    return seen_by(any, rows);
  }
  std::vector<float> out;
  const auto rounded = [&](float x) {
    return type == DType::f16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x));
  };
  for (const float x : rows) {
    const float high = rounded(x);
    out.push_back(high + rounded(x - high));
  }
  return out;
}

class CudaMatmul : public CudaMatrixTest {};

// The first n rows of `a`, through down_proj_residual.
TEST_P(CudaMatmul, EqualsTheExactProductAtEveryNumberOfRows) {
  const DType type = GetParam();
  const int64_t block = dtype_info(type).block_elems == 256 ? 256 : 32;
  struct Shape {
    int64_t outputs, cols;
  };
  std::vector<Shape> shapes{{16, block}, {75, 5 * block}};
  if (kIsEmulated) {
    shapes.insert(shapes.end(), {{33, 3072}, {16 * 75 - 3, 2 * block}});
  } else {
    shapes.insert(shapes.end(), {{304, 19 * block}, {48, 4864}, {33, 18944}});
  }
  shapes.push_back({16 * kManyGroups + 33, 2 * block});
  for (const Shape shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.outputs) + " x " + std::to_string(shape.cols));
    const CudaMatrix w(type, shape.outputs, shape.cols, 3);
    const std::vector<float> a = quant::random_activations(kManyRows * shape.cols, 5);
    const std::vector<float> residual = quant::random_activations(kManyRows * shape.outputs, 6);
    const std::vector<float> bias = uniform_values(shape.outputs, -1, 1, 4);
    StepState step{};
    step.n_rows = kManyRows;
    std::vector<float> expected = residual;
    ExecContext host;
    const std::vector<float> seen = as_seen(type, a);
    down_proj_residual_ref(
        host, {{w.reference, bias.data(), kManyRows}, &step, seen.data(), expected.data()});

    const DeviceArray<float> device_bias = upload(bias), device_a = upload(a);
    const DownProjResidualArgs::Static s{on_device(w), device_bias.get(), kManyRows};
    use_workspace(workspace_bytes_cuda(s));
    std::vector<float> base;
    for (const int n_rows : {kManyRows, 1, 2, 7, 8, 9, 16, 17, 31}) {
      const DeviceArray<float> x =
          upload(std::span(residual).first(static_cast<size_t>(n_rows * shape.outputs)));
      step.n_rows = n_rows;
      down_proj_residual_cuda(ctx(), {s, &step, device_a.get(), x.get()});
      const std::vector<float> got = download(x);
      if (base.empty()) {
        base = got;
        ASSERT_TRUE(meaningful(got, shape.outputs));
        EXPECT_TRUE(close(got, expected, is_real(type) ? 1e-5 : 1e-6));
      }
      EXPECT_TRUE(same_bits(got, std::span(base).first(got.size()))) << n_rows << " rows";
    }
    // A row alone has the bits that it has among others.
    for (const int row : {3, 20, 31}) {
      const DeviceArray<float> one =
          upload(std::span(residual).subspan(row * shape.outputs, shape.outputs));
      step.n_rows = 1;
      down_proj_residual_cuda(ctx(), {s, &step, device_a.get() + row * shape.cols, one.get()});
      EXPECT_TRUE(
          same_bits(download(one), std::span(base).subspan(row * shape.outputs, shape.outputs)))
          << "row " << row;
    }
  }
}

// Batches of 1 to 32, each against the largest.
TEST_P(CudaMatmul, BitsDoNotDependOnTheBatch) {
  const int64_t cols = 768, outputs = 75;
  const CudaMatrix w(GetParam(), outputs, cols, 3);
  const std::vector<float> residual = quant::random_activations(kManyRows * outputs, 6);
  const DeviceArray<float> a = upload(quant::random_activations(kManyRows * cols, 5));
  const DownProjResidualArgs::Static s{on_device(w), nullptr, kManyRows};
  use_workspace(workspace_bytes_cuda(s));
  StepState step{};
  std::vector<float> all;
  for (int n_rows = kManyRows; n_rows > 0; --n_rows) {
    const DeviceArray<float> x =
        upload(std::span(residual).first(static_cast<size_t>(n_rows * outputs)));
    step.n_rows = n_rows;
    down_proj_residual_cuda(ctx(), {s, &step, a.get(), x.get()});
    const std::vector<float> got = download(x);
    if (all.empty()) all = got;
    EXPECT_TRUE(same_bits(got, std::span(all).first(got.size()))) << n_rows << " rows";
  }
}

TEST_P(CudaMatmul, GateAndUp) {
  const DType type = GetParam();
  struct Shape {
    int64_t d_ff, cols;
  };
  std::vector<Shape> shapes{{200, 768}, {16 * kManyGroups + 8, 256}};
  if (!kIsEmulated) shapes.push_back({16 * kManyGroups + 8, 1024});
  for (const auto [d_ff, cols] : shapes) {
    const CudaMatrix gate(type, d_ff, cols, 3), up(type, d_ff, cols, 4);
    const std::vector<float> x = quant::random_activations(kManyRows * cols, 5);
    const std::vector<float> norm = uniform_values(cols, 0.5f, 1.5f, 6);
    // The reference gets the rows that the product saw: its norm changes nothing more.
    const std::vector<float> seen = as_seen(type, rms_norm_rows(x, norm, kEps));
    std::vector<float> expected(kManyRows * d_ff);
    ExecContext host;
    StepState step{};
    step.n_rows = kManyRows;
    std::vector<float> zeros_gate(expected.size(), 0.0f), zeros_up(expected.size(), 0.0f);
    out_proj_residual_ref(
        host, {{gate.reference, nullptr, kManyRows}, &step, seen.data(), zeros_gate.data()});
    out_proj_residual_ref(
        host, {{up.reference, nullptr, kManyRows}, &step, seen.data(), zeros_up.data()});
    for (size_t i = 0; i < expected.size(); ++i) {
      const double g = zeros_gate[i];
      expected[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * zeros_up[i]);
    }
    const DeviceArray<float> device_x = upload(x), device_norm = upload(norm);
    const NormGateUpActArgs::Static s{
        cols, d_ff, kEps, device_norm.get(), on_device(gate), on_device(up), kManyRows};
    use_workspace(workspace_bytes_cuda(s));
    std::vector<float> base;
    for (const int n_rows : {kManyRows, 1, 5, 8, 12, 31}) {
      const DeviceArray<float> h = poisoned<float>(n_rows * d_ff);
      step.n_rows = n_rows;
      norm_gate_up_act_cuda(ctx(), {s, &step, device_x.get(), h.get()});
      const std::vector<float> got = download(h);
      if (base.empty()) {
        base = got;
        ASSERT_TRUE(meaningful(got, d_ff));
        // The norm's sum has another order than the CPU's: now and then a code differs by one.
        EXPECT_TRUE(close(got, expected, 2e-3));
      }
      EXPECT_TRUE(same_bits(got, std::span(base).first(got.size()))) << n_rows << " rows";
    }
  }
}

// The norm of rows with more columns than a block's threads take at once: one order of its sum,
// whether 16 warps make the activations (one row) or 8 (more).
TEST_P(CudaMatmul, NormOfLongRowsHasOneOrder) {
  constexpr int64_t kHidden = 32;
  for (const int64_t cols : {int64_t{3584}, int64_t{4352}, int64_t{8448}}) {
    const CudaMatrix gate(GetParam(), kHidden, cols, 3), up(GetParam(), kHidden, cols, 4);
    const DeviceArray<float> x = upload(quant::random_activations(8 * cols, 5)),
                             norm = upload(uniform_values(cols, 0.5f, 1.5f, 6));
    const NormGateUpActArgs::Static s{cols,          kHidden, kEps, norm.get(), on_device(gate),
                                      on_device(up), 8};
    use_workspace(workspace_bytes_cuda(s));
    StepState step{};
    std::vector<float> base;
    for (const int n_rows : {8, 3, 1}) {
      const DeviceArray<float> h = poisoned<float>(n_rows * kHidden);
      step.n_rows = n_rows;
      norm_gate_up_act_cuda(ctx(), {s, &step, x.get(), h.get()});
      const std::vector<float> got = download(h);
      if (base.empty()) base = got;
      EXPECT_TRUE(same_bits(got, std::span(base).first(got.size()))) << cols << ", " << n_rows;
    }
  }
}

// Gate and up hand h over to down as codes: the bits of h as floats.
TEST_P(CudaMatmul, HiddenFormOfOneRow) {
  const DType type = GetParam();
  if (is_real(type)) GTEST_SKIP() << "16-bit weights take floats";
  struct Shape {
    int64_t d_ff, cols;
  };
  std::vector<Shape> shapes{{256, 256}, {1024, 768}, {(kManyGroups / 16 + 1) * 256, 256}};
  if (!kIsEmulated) shapes.push_back({18944, 3584});
  for (const auto [d_ff, cols] : shapes) {
    const CudaMatrix gate(type, d_ff, cols, 3), up(type, d_ff, cols, 4), w(type, 48, d_ff, 5);
    std::vector<float> x = quant::random_activations(cols, 6);
    const DeviceArray<float> norm = upload(uniform_values(cols, 0.5f, 1.5f, 7));
    NormGateUpActArgs::Static front{cols,          d_ff, kEps, norm.get(), on_device(gate),
                                    on_device(up), 1};
    DownProjResidualArgs::Static down{on_device(w), nullptr, 1};
    use_workspace(std::max(workspace_bytes_cuda(front), workspace_bytes_cuda(down)));
    StepState step{};
    step.n_rows = 1;
    const auto run = [&](HiddenForm form) {
      front.h_form = down.a_form = form;
      const DeviceArray<float> device_x = upload(x), h = poisoned<float>(d_ff);
      const DeviceArray<float> out = upload(std::vector<float>(48, 0.5f));
      norm_gate_up_act_cuda(ctx(), {front, &step, device_x.get(), h.get()});
      down_proj_residual_cuda(ctx(), {down, &step, h.get(), out.get()});
      return download(out);
    };
    EXPECT_TRUE(same_bits(run(HiddenForm::backend), run(HiddenForm::floats))) << d_ff;
    x[1] = std::numeric_limits<float>::infinity();
    const std::vector<float> bad = run(HiddenForm::backend);
    EXPECT_TRUE(std::all_of(bad.begin(), bad.end(), [](float v) { return std::isnan(v); }));
  }
}

TEST_P(CudaMatmul, HeadTakesTheRowsThatWantLogits) {
  const DType type = GetParam();
  // The larger one has several chunks for each block of matmul_few_kernel.
  for (const int64_t vocab : {int64_t{203}, kIsEmulated ? int64_t{1003} : int64_t{50003}}) {
    const int64_t cols = 512;
    const CudaMatrix head(type, vocab, cols, 3);
    const std::vector<float> x = quant::random_activations(kManyRows * cols, 5);
    const std::vector<float> norm = uniform_values(cols, 0.5f, 1.5f, 6);
    const std::vector<int32_t> rows{2, 3, 11, 20, 31};
    const std::vector<float> seen = as_seen(type, rms_norm_rows(x, norm, kEps));
    std::vector<float> all(kManyRows * vocab, 0.0f), expected;
    ExecContext host;
    StepState step{};
    step.n_rows = kManyRows;
    out_proj_residual_ref(host,
                          {{head.reference, nullptr, kManyRows}, &step, seen.data(), all.data()});
    for (const int32_t row : rows) {
      expected.insert(expected.end(), all.begin() + row * vocab, all.begin() + (row + 1) * vocab);
    }
    const DeviceArray<float> device_x = upload(x), device_norm = upload(norm);
    const DeviceArray<int32_t> device_rows = upload(rows);
    const NormHeadArgs::Static s{cols, vocab, kEps, device_norm.get(), on_device(head), 8};
    use_workspace(workspace_bytes_cuda(s));
    step.n_out = static_cast<int32_t>(rows.size());
    step.out_row = device_rows.get();
    const DeviceArray<float> logits = poisoned<float>(step.n_out * vocab);
    norm_head_cuda(ctx(), {s, &step, device_x.get(), logits.get()});
    EXPECT_TRUE(close(download(logits), expected, 2e-3));
  }
}

// NaN and infinities in a row's activations show in that row, and only there.
TEST_P(CudaMatmul, NonFiniteActivationsShow) {
  const DType type = GetParam();
  const int64_t cols = 512, outputs = 64;
  const CudaMatrix w(type, outputs, cols, 3);
  std::vector<float> a = quant::random_activations(3 * cols, 5);
  a[cols + 77] = std::nanf("");
  const DeviceArray<float> device_a = upload(a);
  const OutProjResidualArgs::Static s{on_device(w), nullptr, 3};
  use_workspace(workspace_bytes_cuda(s));
  StepState step{};
  step.n_rows = 3;
  const DeviceArray<float> x = upload(std::vector<float>(3 * outputs, 0.0f));
  out_proj_residual_cuda(ctx(), {s, &step, device_a.get(), x.get()});
  const std::vector<float> got = download(x);
  for (int64_t i = 0; i < outputs; ++i) {
    EXPECT_TRUE(std::isfinite(got[i])) << i;
    EXPECT_TRUE(std::isnan(got[outputs + i])) << i;
    EXPECT_TRUE(std::isfinite(got[2 * outputs + i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaMatmul, testing::ValuesIn(kCudaMatrixTypes),
                         [](const auto& test) { return std::string(dtype_info(test.param).name); });

}  // namespace
}  // namespace fathom

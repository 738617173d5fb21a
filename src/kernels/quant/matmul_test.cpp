// SPDX-License-Identifier: Apache-2.0
// Products of every format on every instruction set: against the formula in double on the same
// int8 activations, and bit for bit across sets, numbers of activation rows and cuts of the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/quant/cases.hpp"
#include "kernels/quant/dequant_ref.hpp"
#include "kernels/quant/pack.hpp"
#include "tensor/portable_math.hpp"

namespace fathom::quant {
namespace {

struct Shape {
  int64_t rows, cols;
};

struct Problem {
  PackedMatrix w;
  std::vector<std::byte> file, packed;
  std::vector<float> values;
  std::vector<ActBlock> blocks;
  int64_t n_act;

  Problem(DType type, Shape shape, int64_t n, uint64_t seed, Activations mode = Activations::int8)
      : w(plan_matrix(type, shape.rows, shape.cols, mode)),
        file(random_weights(type, shape.rows, shape.cols, seed)),
        packed(static_cast<size_t>(w.packed_bytes)),
        values(random_activations(n * shape.cols, seed + 1)),
        blocks(static_cast<size_t>(n * (shape.cols / kActBlockElems + 1))),
        n_act(n) {
    ThreadPool pool(1);
    pack_matrix(pool, w, file.data(), packed.data());
    w.data = packed.data();
    if (!takes_float_activations(w.packed_type)) {
      for (int64_t a = 0; a < n; ++a) {
        select_cpu_kernels("scalar").elementwise.quantize(
            values.data() + a * shape.cols, shape.cols,
            blocks.data() + a * (shape.cols / kActBlockElems));
      }
    }
  }

  std::vector<float> run(const CpuKernels& isa, int64_t act_step, int64_t group_step,
                         bool reads_ahead = cpu_reads_ahead()) const {
    std::vector<float> out(static_cast<size_t>(n_act * w.rows), std::nanf(""));
    const ActRows act{blocks.data(), values.data(), w.cols};
    const int64_t groups = (w.rows + 15) / 16;
    for (int64_t g = 0; g < groups; g += group_step) {
      for (int64_t a = 0; a < n_act; a += act_step) {
        isa.matmul_of(w)({w.data, w.rows, w.cols, g, std::min(g + group_step, groups), &act, a,
                          std::min(a + act_step, n_act), out.data() + a * w.rows, w.rows, 0,
                          reads_ahead});
      }
    }
    return out;
  }

  // The formula in double on the activations that the product reads.
  std::vector<double> exact() const {
    std::vector<double> out(static_cast<size_t>(n_act * w.rows));
    std::vector<float> weights(static_cast<size_t>(w.cols));
    const bool floats = takes_float_activations(w.packed_type);
    for (int64_t row = 0; row < w.rows; ++row) {
      dequantize_row(w.file_type, file.data() + row * row_bytes(w.file_type, w.cols),
                     weights.data(), w.cols);
      for (int64_t a = 0; a < n_act; ++a) {
        double sum = 0;
        for (int64_t col = 0; col < w.cols; ++col) {
          double x = values[static_cast<size_t>(a * w.cols + col)];
          if (!floats) {
            const ActBlock& block =
                blocks[static_cast<size_t>(a * (w.cols / kActBlockElems) + col / kActBlockElems)];
            x = static_cast<double>(block.d) * block.q[col % kActBlockElems];
          }
          sum += static_cast<double>(weights[static_cast<size_t>(col)]) * x;
        }
        out[static_cast<size_t>(a * w.rows + row)] = sum;
      }
    }
    return out;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

class Matmul : public testing::TestWithParam<DType> {};

TEST_P(Matmul, EqualsTheFormulaOnTheSameInt8Inputs) {
  for (Shape shape : {Shape{16, 256}, Shape{48, 512}, Shape{37, 1792}, Shape{1, 256}}) {
    const Problem problem(GetParam(), shape, 3, 17 + shape.rows);
    const std::vector<double> exact = problem.exact();
    double norm = 0;
    for (double y : exact) norm += y * y;
    ASSERT_GT(norm, 1e-6) << "degenerate inputs";
    for (const CpuKernels* isa : available_cpu_kernels()) {
      const std::vector<float> got = problem.run(*isa, 1, 100);
      double error = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i])) << isa->isa << " value " << i;
        error += (got[i] - exact[i]) * (got[i] - exact[i]);
      }
      EXPECT_LT(std::sqrt(error / norm), 1e-6)
          << isa->isa << " rows " << shape.rows << " cols " << shape.cols;
    }
  }
}

TEST_P(Matmul, BitsDependOnNothingButTheInputs) {
  const Problem problem(GetParam(), {83, 768}, 13, 5);
  const std::vector<float> base = problem.run(select_cpu_kernels("scalar"), 1, 1);
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (int64_t act_step : {1, 2, 3, 4, 8, 13}) {
      for (int64_t group_step : {1, 2, 6}) {
        for (bool reads_ahead : {false, true}) {
          EXPECT_TRUE(same_bits(base, problem.run(*isa, act_step, group_step, reads_ahead)))
              << isa->isa << " act step " << act_step << " group step " << group_step
              << " the core reads ahead: " << reads_ahead;
        }
      }
    }
  }
}

TEST_P(Matmul, ExactModeMultipliesTheDequantisedWeights) {
  const Problem problem(GetParam(), {20, 256}, 2, 9, Activations::f32);
  EXPECT_EQ(problem.w.packed_type, DType::f32);
  const std::vector<double> exact = problem.exact();
  double norm = 0, error = 0;
  const std::vector<float> got = problem.run(*available_cpu_kernels().front(), 2, 2);
  for (size_t i = 0; i < got.size(); ++i) {
    norm += exact[i] * exact[i];
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-6);
}

std::vector<DType> every_type() {
  std::vector<DType> out;
  for (const DTypeInfo& info : all_dtypes()) out.push_back(info.type);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Formats, Matmul, testing::ValuesIn(every_type()),
                         [](const auto& test) { return dtype_info(test.param).name; });

TEST(Pack, RefusesRowsThatAreNotWholeBlocks) {
  EXPECT_THROW(plan_matrix(DType::q4_k, 16, 576, Activations::int8), Error);
}

TEST(Elementwise, QuantiseRoundsToNearestEvenWithinTheLargest) {
  std::vector<float> x(64, 0.0f);
  x[3] = -127.0f;
  x[4] = 2.5f;
  x[5] = 3.5f;
  x[20] = 1.0f;
  for (const CpuKernels* isa : available_cpu_kernels()) {
    ActBlock out[2];
    isa->elementwise.quantize(x.data(), 64, out);
    EXPECT_EQ(out[0].d, 1.0f);
    EXPECT_EQ(out[0].q[3], -127);
    EXPECT_EQ(out[0].q[4], 2);
    EXPECT_EQ(out[0].q[5], 4);
    EXPECT_EQ(out[0].minus_half[0], 121);
    EXPECT_EQ(out[0].minus_half[1], -1);
    EXPECT_EQ(out[0].minus_pair[0], 121);
    EXPECT_EQ(out[0].minus_sum, 120);
    EXPECT_EQ(out[0].d_sum, -120.0f);
    EXPECT_EQ(out[1].d, 0.0f);
    EXPECT_EQ(out[1].minus_sum, 0);
  }
}

TEST(Elementwise, ExpHasThePortableBits) {
  std::vector<float> x = random_activations(1001, 9);
  for (float& value : x) value *= 30.0f;  // both ends of the range are met
  for (const float edge : {0.0f, -0.0f, -87.0f, -87.1f, 88.0f, 88.1f, INFINITY, -INFINITY}) {
    x.push_back(edge);
  }
  std::vector<float> expected;
  for (const float value : x) expected.push_back(portable_exp(value));
  EXPECT_GT(std::count(expected.begin(), expected.end(), 0.0f), 2);
  for (const CpuKernels* isa : available_cpu_kernels()) {
    std::vector<float> out = x;
    isa->elementwise.exp(out.data(), static_cast<int64_t>(out.size()), out.data());
    EXPECT_TRUE(same_bits(out, expected)) << isa->isa;
  }
}

TEST(Elementwise, BitsAreEqualOnEveryInstructionSet) {
  const int64_t n = 1000;
  const std::vector<float> x = random_activations(n, 1), y = random_activations(n, 2);
  std::vector<std::vector<float>> norms, silus;
  std::vector<std::vector<uint16_t>> halves;
  for (const CpuKernels* isa : available_cpu_kernels()) {
    std::vector<float> out(n);
    isa->elementwise.rms_norm(x.data(), y.data(), 1e-5f, n, out.data());
    norms.push_back(out);
    isa->elementwise.silu_mul(x.data(), y.data(), n, out.data());
    silus.push_back(out);
    std::vector<uint16_t> half(n);
    isa->elementwise.to_f16(x.data(), n, half.data());
    halves.push_back(half);
    for (int64_t i = 0; i < n; ++i) {
      const double exact = x[i] / (1.0 + std::exp(-static_cast<double>(x[i]))) * y[i];
      EXPECT_NEAR(out[i], exact, 1e-6 * std::fabs(exact) + 1e-30) << isa->isa << " " << x[i];
    }
  }
  for (size_t i = 1; i < norms.size(); ++i) {
    EXPECT_TRUE(same_bits(norms[0], norms[i]));
    EXPECT_TRUE(same_bits(silus[0], silus[i]));
    EXPECT_EQ(halves[0], halves[i]);
  }
}

}  // namespace
}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// The GPU's embedding against the reference: x bit for bit in every table type and number of rows,
// the angles within one ulp, padded rows finite, and eager equal to replayed.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/cxx20.cuh"
#include "kernels/embed/embed.hpp"
#include "kernels/quant/cases.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/cuda_fixture.hpp"
#include "tests/support/emulated.hpp"

namespace fathom {
namespace {

constexpr int64_t kVocab = 300;
constexpr int kRopeDim = 128;
constexpr int kMaxRows = 33;

std::vector<DType> every_type() {
  std::vector<DType> out;
  for (const DTypeInfo& info : all_dtypes()) out.push_back(info.type);
  return out;
}

class EmbedCuda : public test::CudaTestWithParam<DType> {
 protected:
  // Columns around the work of a block of threads, whole blocks of the type.
  std::vector<int64_t> columns() const {
    const int block = dtype_info(GetParam()).block_elems;
    if (block == 1) return {1, 255, 257, 1025};
    return {256, 1024, 1280};
  }
};

// Distance in representable floats.
int64_t ulps(float a, float b) {
  const auto ordered = [](float x) {
    const int32_t bits = __builtin_bit_cast(int32_t, x);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(ordered(a) - ordered(b));
}

TEST_P(EmbedCuda, HasTheBitsOfTheReference) {
  int64_t worst_ulps = 0, n_off = 0, n_angles = 0;
  for (const int64_t d_model : columns()) {
    const std::vector<std::byte> table = quant::random_weights(GetParam(), kVocab, d_model, 31);
    std::vector<double> inv_freq;
    for (int i = 0; i < kRopeDim / 2; ++i) inv_freq.push_back(std::pow(1e6, -2.0 * i / kRopeDim));
    std::vector<int32_t> token, pos;
    for (int row = 0; row < kMaxRows; ++row) {
      token.push_back(row % 4 == 3 ? 0 : (row * 37 + 299) % kVocab);
      pos.push_back(row % 4 == 3 ? -1 : row * 4099);  // each fourth row fills up the bucket
    }
    EmbedArgs args{{table.data(), GetParam(), kVocab, d_model, inv_freq.data(), kRopeDim, 1.1f},
                   nullptr,
                   nullptr,
                   nullptr};
    StepState step{};
    step.n_rows = kMaxRows;
    step.token = token.data();
    step.pos = pos.data();
    args.step = &step;
    std::vector<float> x(static_cast<size_t>(kMaxRows * d_model));
    std::vector<float> rope(static_cast<size_t>(kMaxRows * kRopeDim));
    args.x = x.data();
    args.rope = rope.data();
    ExecContext host;
    embed_ref(host, args);
    ASSERT_TRUE(test::meaningful(x, static_cast<size_t>(d_model)));

    const auto table_d = upload(table);
    const auto inv_freq_d = upload(inv_freq);
    const auto token_d = upload(token), pos_d = upload(pos);
    args.s.table = table_d.get();
    args.s.inv_freq = inv_freq_d.get();
    step.token = token_d.get();
    step.pos = pos_d.get();
    for (const int n_rows : {1, 2, 4, 17, kMaxRows}) {
      const auto x_d = poisoned<float>(kMaxRows * d_model);
      const auto rope_d = poisoned<float>(kMaxRows * kRopeDim);
      args.x = x_d.get();
      args.rope = rope_d.get();
      step.n_rows = n_rows;
      embed_cuda(ctx(), args);
      const std::vector<float> got_x = download(x_d), got_rope = download(rope_d);
      const size_t n = static_cast<size_t>(n_rows * d_model);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(test::same_bits({&got_x[i], 1}, {&x[i], 1}))
            << "row " << i / static_cast<size_t>(d_model) << " col "
            << i % static_cast<size_t>(d_model) << ": " << got_x[i] << ", expected " << x[i];
      }
      const size_t n_rope = static_cast<size_t>(n_rows * kRopeDim);
      for (size_t i = 0; i < n_rope; ++i) {
        const int64_t off = ulps(got_rope[i], rope[i]);
        ASSERT_LE(off, 1) << "angle " << i << ": " << got_rope[i] << ", expected " << rope[i];
        worst_ulps = std::max(worst_ulps, off);
        n_off += off != 0;
        ++n_angles;
      }
      for (size_t i = n; i < got_x.size(); ++i) ASSERT_TRUE(std::isnan(got_x[i])) << "past the end";
      for (size_t i = n_rope; i < got_rope.size(); ++i) ASSERT_TRUE(std::isnan(got_rope[i]));
    }
  }
  RecordProperty("angles", std::to_string(n_angles));
  RecordProperty("angles_off_by_one_ulp", std::to_string(n_off));
  RecordProperty("worst_ulps", std::to_string(worst_ulps));
}

INSTANTIATE_TEST_SUITE_P(Tables, EmbedCuda, testing::ValuesIn(every_type()),
                         [](const auto& test) { return dtype_info(test.param).name; });

INSTANTIATE_TEST_SUITE_P(Sanitized, EmbedCuda,
                         testing::Values(DType::bf16, DType::q5_1, DType::q6_k),
                         [](const auto& test) { return dtype_info(test.param).name; });

class EmbedCudaStep : public test::CudaTest {};

// The step state is read on the device: a captured launch follows what changes there.
TEST_F(EmbedCudaStep, ReplaysWithNewTokensAndShowsUnknownOnes) {
  const std::vector<float> table{1, 2, 3, 4, 5, 6};
  const auto table_d = upload(table);
  const auto inv_freq = upload(std::vector<double>{2 * std::atan(1.0)});
  const auto token = upload(std::vector<int32_t>{1, 2}), pos = upload(std::vector<int32_t>{1, -1});
  const auto x = poisoned<float>(4), rope = poisoned<float>(4);
  StepState step{};
  step.n_rows = 2;
  step.token = token.get();
  step.pos = pos.get();
  const EmbedArgs args{{reinterpret_cast<const std::byte*>(table_d.get()), DType::f32, 3, 2,
                        inv_freq.get(), 2, 1.5f},
                       &step,
                       x.get(),
                       rope.get()};
  const Graph graph = capture_graph(api(), stream(), [&] { embed_cuda(ctx(), args); });
  api().graph_launch(graph.get(), stream().get());
  EXPECT_EQ(download(x), (std::vector<float>{3, 4, 5, 6}));
  std::vector<float> angles = download(rope);
  EXPECT_NEAR(angles[0], 0, 1e-7);
  EXPECT_EQ(angles[1], 1.5f);
  EXPECT_EQ(angles[3], -1.5f);

  const std::vector<int32_t> next{3, 0};
  api().copy_to_device(token.get(), next.data(), 8, stream().get());
  api().graph_launch(graph.get(), stream().get());
  const std::vector<float> got = download(x);
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1])) << "token 3 of a table of three";
  EXPECT_EQ(got[2], 1);
  EXPECT_EQ(got[3], 2);
}

// More rows than a grid has blocks in its second dimension.
TEST_F(EmbedCudaStep, MoreRowsThanAGridHas) {
  if (test::kIsEmulated) GTEST_SKIP() << "too many threads for the emulator";
  constexpr int kRows = (1 << 16) + 3, kRowDim = 2;
  const auto table = upload(std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto inv_freq = upload(std::vector<double>{1.0});
  std::vector<int32_t> tokens(kRows), positions(kRows, 0);
  for (int row = 0; row < kRows; ++row) tokens[static_cast<size_t>(row)] = row % 3;
  const auto token = upload(tokens), pos = upload(positions);
  const auto x = poisoned<float>(kRows * kRowDim), rope = poisoned<float>(kRows * kRowDim);
  StepState step{};
  step.n_rows = kRows;
  step.token = token.get();
  step.pos = pos.get();
  embed_cuda(ctx(), {{reinterpret_cast<const std::byte*>(table.get()), DType::f32, 3, kRowDim,
                      inv_freq.get(), kRowDim, 1.0f},
                     &step,
                     x.get(),
                     rope.get()});
  const std::vector<float> got = download(x), angles = download(rope);
  for (int row = 0; row < kRows; ++row) {
    const size_t at = static_cast<size_t>(row) * kRowDim;
    ASSERT_EQ(got[at], static_cast<float>(1 + 2 * (row % 3))) << row;
    ASSERT_EQ(got[at + 1], static_cast<float>(2 + 2 * (row % 3))) << row;
    ASSERT_EQ(angles[at], 1.0f) << row;
  }
}

}  // namespace
}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// NaN and infinity among activations: no rounding to int8 may hide them, so that the check of the
// logits finds them.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/support/op_cases.hpp"

namespace fathom {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kBad[] = {kNan, -kNan, kInfinity, -kInfinity};

TEST(NonFinite, QuantisingGivesNanScalesAndNoCodes) {
  ActBlock expected{};
  expected.d = expected.d_sum = kNan;
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (const float bad : kBad) {
      for (int at = 0; at < 32; ++at) {
        std::vector<float> x = quant::random_activations(96, 3);
        x[static_cast<size_t>(32 + at)] = bad;
        ActBlock out[3];
        isa->elementwise.quantize(x.data(), 96, out);
        EXPECT_EQ(std::memcmp(&out[1], &expected, sizeof expected), 0)
            << isa->isa << " " << bad << " at " << at;
        EXPECT_TRUE(std::isfinite(out[0].d) && std::isfinite(out[2].d));
      }
    }
  }
}

// The largest finite values are no infinities, and the smallest no zeros.
TEST(NonFinite, ExtremesStayFinite) {
  for (const float extreme : {std::numeric_limits<float>::max(), 0x1p-120f}) {
    std::vector<float> x(32, -extreme);
    x[7] = extreme;
    for (const CpuKernels* isa : available_cpu_kernels()) {
      ActBlock out;
      isa->elementwise.quantize(x.data(), 32, &out);
      EXPECT_EQ(out.d, extreme / 127) << isa->isa;
      EXPECT_EQ(out.q[7], 127) << isa->isa;
      EXPECT_EQ(out.q[8], -127) << isa->isa;
    }
  }
}

class Products : public testing::TestWithParam<DType> {};

// One bad activation spoils the products of its row, and of no other.
TEST_P(Products, OfTheRowAreNotFinite) {
  constexpr int64_t kRows = 37, kCols = 512, kActRows = 3;
  const OpMatrix matrix(GetParam(), kRows, kCols, Activations::int8, 23);
  const PackedMatrix& w = matrix.cpu;
  std::vector<float> values = quant::random_activations(kActRows * kCols, 24);
  std::vector<ActBlock> blocks(values.size() / kActBlockElems);
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (const float bad : kBad) {
      for (const int64_t at : {0, 5, 31, 256, 511}) {
        float& value = values[static_cast<size_t>(kCols + at)];
        const float good = std::exchange(value, bad);
        isa->elementwise.quantize(values.data(), kActRows * kCols, blocks.data());
        const ActRows act{blocks.data(), values.data(), kCols};
        std::vector<float> out = poisoned(kActRows * kRows);
        isa->matmul_of(w)(
            {w.data, kRows, kCols, 0, (kRows + 15) / 16, &act, 0, kActRows, out.data(), kRows, 0});
        for (int64_t i = 0; i < kActRows * kRows; ++i) {
          ASSERT_EQ(std::isfinite(out[static_cast<size_t>(i)]), i / kRows != 1)
              << isa->isa << " " << bad << " at " << at << ", value " << i;
        }
        value = good;
      }
    }
  }
}

std::vector<DType> every_type() {
  std::vector<DType> out;
  for (const DTypeInfo& info : all_dtypes()) out.push_back(info.type);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Formats, Products, testing::ValuesIn(every_type()),
                         [](const auto& test) { return dtype_info(test.param).name; });

}  // namespace
}  // namespace fathom

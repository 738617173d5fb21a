// SPDX-License-Identifier: Apache-2.0
// The CPU's fill against the reference's bytes, in every cache format; the spread that it takes
// over; and that it writes the tokens it was asked for and nothing else.
#include "kernels/kv_fill/kv_fill.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/common/cpu_kernels.hpp"
#include "tests/support/kv_formats.hpp"

namespace fathom {
namespace {

constexpr int kHeads = 3, kHeadDim = 64, kSource = 100, kEnd = 700;

// A paged cache whose first kSource tokens hold keys and values of known mean and deviation.
struct Problem {
  KvGeometry geometry;
  std::vector<std::byte> k, v;
  std::vector<int32_t> pages;

  Problem(KvFormat format, int page_tokens) : geometry{format, kHeads, kHeadDim, page_tokens} {
    const int n_pages = (kEnd + page_tokens - 1) / page_tokens + 1;
    for (int i = 0; i < n_pages; ++i) pages.push_back(n_pages - 1 - i);
    k.assign(static_cast<size_t>(n_pages * geometry.page_bytes()), std::byte{0xa5});
    v = k;
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    std::vector<double> x(kHeadDim);
    for (int token = 0; token < kSource; ++token) {
      for (int head = 0; head < kHeads; ++head) {
        for (const KvPart part : {KvPart::key, KvPart::value}) {
          for (int dim = 0; dim < kHeadDim; ++dim) {
            x[static_cast<size_t>(dim)] = mean(part, head, dim) + sigma(part, dim) * normal(random);
          }
          kv_store_ref(view(), part, pages.data(), head, token, x.data());
        }
      }
    }
  }
  static double mean(KvPart part, int head, int dim) {
    return part == KvPart::key ? 0.1 * dim : -head;
  }
  static double sigma(KvPart part, int dim) { return part == KvPart::key ? 2.0 + dim % 3 : 0.25; }

  KvLayerView view() { return {geometry, k.data(), v.data()}; }
  KvFillArgs args(int64_t begin, int64_t end, uint64_t seed = 9, int layer = 1) {
    return {{view(), layer}, pages.data(), begin, end, seed};
  }
  void fill(const CpuKernels& isa, int threads, const KvFillArgs& args) {
    ThreadPool pool(threads, false);
    ExecContext ctx;
    ctx.pool = &pool;
    ctx.cpu = &isa;
    kv_fill_cpu(ctx, args);
  }
  bool operator==(const Problem& other) const { return k == other.k && v == other.v; }
};

class KvFill : public testing::TestWithParam<std::tuple<KvFormat, int>> {
 protected:
  Problem problem() const {
    return Problem(std::get<KvFormat>(GetParam()), std::get<int>(GetParam()));
  }
};

TEST_P(KvFill, CpuWritesTheReferencesBytes) {
  Problem expected = problem();
  ExecContext ctx;
  kv_fill_ref(ctx, expected.args(kSource, kEnd));
  for (const CpuKernels* isa : available_cpu_kernels()) {
    for (const int threads : {1, 3}) {
      Problem filled = problem();
      filled.fill(*isa, threads, filled.args(kSource, kEnd));
      EXPECT_TRUE(filled == expected) << isa->isa << ", " << threads << " threads";
    }
  }
}

TEST_P(KvFill, WritesOnlyTheTokensAskedFor) {
  Problem before = problem(), filled = problem();
  filled.fill(*available_cpu_kernels().front(), 1, filled.args(kSource, kEnd));
  std::vector<double> a(kHeadDim), b(kHeadDim);
  const int64_t page_end = static_cast<int64_t>(filled.pages.size()) * filled.geometry.page_tokens;
  for (int64_t token = 0; token < page_end; ++token) {
    if (token >= kSource && token < kEnd) continue;
    for (int head = 0; head < kHeads; ++head) {
      for (const KvPart part : {KvPart::key, KvPart::value}) {
        kv_load_ref(before.view(), part, before.pages.data(), head, token, a.data());
        kv_load_ref(filled.view(), part, filled.pages.data(), head, token, b.data());
        ASSERT_EQ(a, b) << "token " << token;
      }
    }
  }
}

TEST_P(KvFill, TakesOverMeanAndDeviationOfTheSource) {
  Problem p = problem();
  p.fill(*available_cpu_kernels().front(), 1, p.args(kSource, kEnd));
  std::vector<double> x(kHeadDim);
  for (const KvPart part : {KvPart::key, KvPart::value}) {
    const KvSpread source = kv_spread(p.args(kSource, kEnd), part, 2);
    std::vector<double> sum(kHeadDim), squares(kHeadDim);
    for (int64_t token = kSource; token < kEnd; ++token) {
      kv_load_ref(p.view(), part, p.pages.data(), 2, token, x.data());
      for (size_t dim = 0; dim < kHeadDim; ++dim) {
        ASSERT_TRUE(std::isfinite(x[dim]));
        const double z = (x[dim] - source.mean[dim]) / source.sigma[dim];
        sum[dim] += z;
        squares[dim] += z * z;
      }
    }
    constexpr double kTokens = kEnd - kSource;
    for (size_t dim = 0; dim < kHeadDim; ++dim) {
      EXPECT_NEAR(source.mean[dim], Problem::mean(part, 2, static_cast<int>(dim)),
                  0.5 * Problem::sigma(part, static_cast<int>(dim)));
      EXPECT_NEAR(sum[dim] / kTokens, 0.0, 0.2);  // five deviations of a mean over 600
      EXPECT_NEAR(squares[dim] / kTokens, 1.0, 0.25);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvFill,
                         testing::Combine(testing::ValuesIn(test::all_kv_formats()),
                                          testing::Values(16, 1024)));

TEST(KvNoise, DependsOnEachOfItsArguments) {
  const KvNoise base = kv_noise(1, 2, 0, 3, 4, 8);
  auto differs = [&](const KvNoise& other) {
    return !std::equal(std::begin(base.z), std::end(base.z), std::begin(other.z));
  };
  EXPECT_TRUE(differs(kv_noise(2, 2, 0, 3, 4, 8)));
  EXPECT_TRUE(differs(kv_noise(1, 3, 0, 3, 4, 8)));
  EXPECT_TRUE(differs(kv_noise(1, 2, 1, 3, 4, 8)));
  EXPECT_TRUE(differs(kv_noise(1, 2, 0, 4, 4, 8)));
  EXPECT_TRUE(differs(kv_noise(1, 2, 0, 3, 5, 8)));
  EXPECT_TRUE(differs(kv_noise(1, 2, 0, 3, 4, 12)));
}

TEST(KvSpread, AZeroHeadIsNotMeasuredOnZeros) {
  Problem p(KvFormat::f32, 1024);
  std::fill(p.k.begin(), p.k.end(), std::byte{0});
  const KvSpread spread = kv_spread(p.args(kSource, kEnd), KvPart::key, 0);
  EXPECT_EQ(spread.sigma, std::vector<double>(kHeadDim, 1.0));
}

}  // namespace
}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// sample against cases worked by hand, against a plain implementation that sorts everything, and
// against the distribution it must draw from.
#include "kernels/sample/sample.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "kernels/common/cpu_kernels.hpp"
#include "tensor/philox.hpp"

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sampler {
  SamplerParams params;
  std::vector<LogitBias> bias;
  std::vector<int32_t> history;
  int64_t position = 0;

  int32_t operator()(const std::vector<float>& logits) const {
    validate(params);
    const SampleArgs::Static s{static_cast<int64_t>(logits.size())};
    std::vector<std::byte> memory(workspace_bytes_cpu(s) + 64);
    ExecContext ctx;
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    ctx.workspace = {memory.data() + (64 - address % 64) % 64, workspace_bytes_cpu(s)};
    int32_t token = -1;
    SampleArgs args{s, &params, bias, history, position, logits.data(), &token};
    sample_ref(ctx, args);
    for (const CpuKernels* isa : available_cpu_kernels()) {
      ctx.cpu = isa;
      int32_t same = -1;
      args.token = &same;
      sample_cpu(ctx, args);
      EXPECT_EQ(same, token) << isa->isa;
    }
    return token;
  }
};

std::vector<float> random_logits(int64_t n, uint32_t seed, float spread = 3.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

TEST(Philox, KnownAnswers) {
  const auto words = [](PhiloxBlock b) { return std::vector<uint32_t>(b.x, b.x + 4); };
  EXPECT_THAT(words(philox4x32_10({{0, 0, 0, 0}}, 0, 0)),
              testing::ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(words(philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u)),
              testing::ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(words(philox4x32_10({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
                                  0xa4093822u, 0x299f31d0u)),
              testing::ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Sample, GreedyTakesTheLowestIdAmongTies) {
  Sampler sample;
  EXPECT_EQ(sample({1, 5, 2, 5, 5}), 1);
  std::vector<float> many(1000, -3.0f);
  many[777] = many[999] = 2.0f;
  EXPECT_EQ(sample(many), 777);
  many[3] = std::nanf("");
  EXPECT_EQ(sample(many), 777);
}

TEST(Sample, RepeatPenaltyDividesPositiveAndMultipliesNegativeOncePerToken) {
  Sampler sample;
  sample.params.repeat_penalty = 2.0f;
  sample.history = {0, 0, 0};
  EXPECT_EQ(sample({4.0f, 1.9f}), 0);  // 2.0 remains: three occurrences count once
  EXPECT_EQ(sample({4.0f, 2.1f}), 1);
  EXPECT_EQ(sample({-1.0f, -1.9f}), 1);  // -2.0 against -1.9
  sample.params.repeat_last_n = 0;
  EXPECT_EQ(sample({4.0f, 2.1f}), 0);
  sample.params.repeat_last_n = 1;
  sample.history = {0, 1};
  EXPECT_EQ(sample({4.0f, 5.0f}), 0);  // only token 1 is in the window
}

TEST(Sample, BiasActsAfterThePenalty) {
  Sampler sample;
  sample.params.repeat_penalty = 2.0f;
  sample.history = {0};
  sample.bias = {{0, 1.5f}};
  EXPECT_EQ(sample({2.0f, 2.4f}), 0);  // 2/2 + 1.5 = 2.5; the other order gives 1.75
  sample.bias = {{0, -kInfinity}, {1, -kInfinity}};
  EXPECT_EQ(sample({9.0f, 9.0f, -50.0f}), 2);
  sample.bias.push_back({2, -kInfinity});
  EXPECT_THROW(sample({9.0f, 9.0f, -50.0f}), Error);
}

TEST(Sample, RefusesParametersByName) {
  const auto message = [](auto change) {
    SamplerParams p;
    change(p);
    try {
      validate(p);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message([](auto& p) { p.temperature = -1; }), testing::HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.temperature = std::nanf(""); }),
              testing::HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -1; }), testing::HasSubstr("top-k"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 0; }), testing::HasSubstr("top-p"));
  EXPECT_THAT(message([](auto& p) { p.min_p = 1; }), testing::HasSubstr("min-p"));
  EXPECT_THAT(message([](auto& p) { p.repeat_penalty = 0; }), testing::HasSubstr("repeat-penalty"));
  EXPECT_THAT(message([](auto& p) { p.repeat_last_n = -2; }), testing::HasSubstr("repeat-last-n"));
}

// The same chain with every token sorted and libm's exp: the set that may be drawn, with its
// probabilities.
std::map<int32_t, double> plain_distribution(const SamplerParams& p,
                                             const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  std::vector<double> weights;
  double total = 0;
  for (const int32_t id : order) {
    weights.push_back(std::exp((double{logits[id]} - logits[order[0]]) / p.temperature));
    total += weights.back();
  }
  double sum = 0;
  size_t kept = 0;
  while (kept < order.size()) {
    sum += weights[kept++];
    if (p.top_p < 1 && sum >= p.top_p * total) break;
  }
  std::map<int32_t, double> out;
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) {
    if (weights[i] >= p.min_p) mass += out[order[i]] = weights[i];
  }
  for (auto& [id, weight] : out) weight /= mass;
  return out;
}

struct Filter {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
};

class SampleFilters : public testing::TestWithParam<Filter> {};

// Chi-square of 4,000 draws against the plain distribution, and no draw outside its support.
TEST_P(SampleFilters, DrawsFromThePlainDistribution) {
  Sampler sample;
  sample.params.temperature = GetParam().temperature;
  sample.params.top_k = GetParam().top_k;
  sample.params.top_p = GetParam().top_p;
  sample.params.min_p = GetParam().min_p;
  sample.params.seed = 7;
  const std::vector<float> logits = random_logits(700, 11);
  const auto expected = plain_distribution(sample.params, logits);
  constexpr int kDraws = 4000;
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    sample.position = i;
    const int32_t token = sample(logits);
    ASSERT_TRUE(expected.contains(token)) << token;
    ++counts[token];
  }
  double chi_square = 0;
  double rest_expected = 0, rest_found = 0;
  int cells = 0;
  for (const auto& [id, probability] : expected) {
    const double mean = probability * kDraws;
    if (mean < 10) {
      rest_expected += mean;
      rest_found += counts[id];
      continue;
    }
    chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
    ++cells;
  }
  if (rest_expected >= 10) {
    chi_square += (rest_found - rest_expected) * (rest_found - rest_expected) / rest_expected;
    ++cells;
  }
  ASSERT_GE(cells, 2);
  const double freedom = cells - 1;
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5);
  EXPECT_GT(counts.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, SampleFilters,
                         testing::Values(Filter{1.0f, 0, 1.0f, 0.0f}, Filter{0.7f, 40, 1.0f, 0.0f},
                                         Filter{1.0f, 0, 0.9f, 0.0f}, Filter{2.5f, 0, 0.99f, 0.0f},
                                         Filter{0.8f, 0, 1.0f, 0.1f}, Filter{1.3f, 50, 0.8f, 0.05f},
                                         Filter{1.0f, 5, 0.95f, 0.0f}));

TEST(Sample, DependsOnSeedAndPositionAlone) {
  Sampler sample;
  sample.params.temperature = 1.0f;
  const std::vector<float> logits = random_logits(5000, 3);
  std::set<int32_t> by_position, by_seed;
  for (int i = 0; i < 50; ++i) {
    sample.position = i;
    const int32_t first = sample(logits);
    EXPECT_EQ(sample(logits), first);
    by_position.insert(first);
    sample.position = 0;
    sample.params.seed = i;
    by_seed.insert(sample(logits));
    sample.params.seed = 0;
  }
  EXPECT_GT(by_position.size(), 10u);
  EXPECT_GT(by_seed.size(), 10u);
}

TEST(Sample, TopKKeepsTheLowestIdsAmongTies) {
  Sampler sample;
  sample.params.temperature = 1.0f;
  sample.params.top_k = 3;
  const std::vector<float> logits(100, 1.0f);
  for (int i = 0; i < 200; ++i) {
    sample.position = i;
    EXPECT_LT(sample(logits), 3);
  }
}

TEST(Sample, CostReadsTheLogitsOnce) {
  EXPECT_EQ(cost(SampleArgs::Static{1000}, 2).act_read_bytes, 8000);
  EXPECT_EQ(cost(SampleArgs::Static{1000}, 2).memory_bytes(), 0);
}

}  // namespace
}  // namespace fathom

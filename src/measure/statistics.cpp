// SPDX-License-Identifier: Apache-2.0
// The estimators and their intervals, and the seeded random numbers that they draw.
#include "measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

constexpr double kMadToSigma = 1.4826;
constexpr double kOutlierSigmas = 5.0;
constexpr size_t kExactWilcoxon = 25;

std::vector<double> sorted(std::span<const double> samples) {
  FATHOM_CHECK(!samples.empty(), "a statistic needs a sample");
  std::vector<double> s(samples.begin(), samples.end());
  std::sort(s.begin(), s.end());
  return s;
}

double sorted_quantile(const std::vector<double>& s, double p) {
  const double at = p * static_cast<double>(s.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, s.size() - 1);
  return s[low] + (at - static_cast<double>(low)) * (s[high] - s[low]);
}

std::vector<double> walsh_averages(std::span<const double> x) {
  std::vector<double> w;
  w.reserve(x.size() * (x.size() + 1) / 2);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i; j < x.size(); ++j) w.push_back((x[i] + x[j]) / 2);
  }
  std::sort(w.begin(), w.end());
  return w;
}

// The quantile function of the normal distribution, by bisection on erfc.
double normal_quantile(double p) {
  double lo = -10, hi = 10;
  for (int step = 0; step < 100; ++step) {
    const double mid = (lo + hi) / 2;
    (0.5 * std::erfc(-mid / std::sqrt(2.0)) < p ? lo : hi) = mid;
  }
  return (lo + hi) / 2;
}

// The smallest t with P(T <= t) >= p, T the signed-rank statistic of n samples.
size_t signed_rank_quantile(size_t n, double p) {
  const size_t total = n * (n + 1) / 2;
  if (n > kExactWilcoxon) {
    const double mu = static_cast<double>(total) / 2;
    const double sigma = std::sqrt(static_cast<double>(n * (n + 1) * (2 * n + 1)) / 24);
    return static_cast<size_t>(std::max(0.0, std::ceil(mu + normal_quantile(p) * sigma - 0.5)));
  }
  // ways[t]: subsets of the ranks 1..n that add up to t.
  std::vector<double> ways(total + 1, 0.0);
  ways[0] = 1;
  for (size_t rank = 1; rank <= n; ++rank) {
    for (size_t t = total; t >= rank; --t) ways[t] += ways[t - rank];
  }
  const double all = std::ldexp(1.0, static_cast<int>(n));
  double below = 0;
  for (size_t t = 0; t <= total; ++t) {
    below += ways[t];
    if (below / all >= p) return t;
  }
  return total;
}

}  // namespace

double quantile(std::span<const double> samples, double p) {
  return sorted_quantile(sorted(samples), p);
}

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double mean(std::span<const double> samples) {
  FATHOM_CHECK(!samples.empty(), "a statistic needs a sample");
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double sample_stddev(std::span<const double> samples) {
  if (samples.size() < 2) return 0;
  const double m = mean(samples);
  double squares = 0;
  for (double x : samples) squares += (x - m) * (x - m);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

double median_absolute_deviation(std::span<const double> samples) {
  const double m = median(samples);
  std::vector<double> distance;
  distance.reserve(samples.size());
  for (double x : samples) distance.push_back(std::abs(x - m));
  return median(distance);
}

double hodges_lehmann(std::span<const double> samples) {
  FATHOM_CHECK(!samples.empty(), "a statistic needs a sample");
  return sorted_quantile(walsh_averages(samples), 0.5);
}

Interval hodges_lehmann_interval(std::span<const double> samples, double confidence) {
  FATHOM_CHECK(!samples.empty(), "a statistic needs a sample");
  const std::vector<double> walsh = walsh_averages(samples);
  const size_t q = std::max<size_t>(1, signed_rank_quantile(samples.size(), (1 - confidence) / 2));
  return {walsh[q - 1], walsh[walsh.size() - q]};
}

double theil_sen_slope(std::span<const double> x, std::span<const double> y) {
  FATHOM_CHECK(x.size() == y.size(), "Theil-Sen needs pairs");
  std::vector<double> slopes;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i + 1; j < x.size(); ++j) {
      if (x[i] != x[j]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
    }
  }
  return median(slopes);
}

Interval bootstrap_median(std::span<const double> samples, uint64_t seed, double confidence,
                          int resamples) {
  FATHOM_CHECK(!samples.empty(), "a statistic needs a sample");
  Random random(seed);
  const size_t n = samples.size();
  std::vector<double> draw(n), medians;
  medians.reserve(static_cast<size_t>(resamples));
  for (int b = 0; b < resamples; ++b) {
    for (double& x : draw) x = samples[random.below(n)];
    const auto middle = draw.begin() + static_cast<std::ptrdiff_t>(n / 2);
    std::nth_element(draw.begin(), middle, draw.end());
    const double upper = *middle;
    medians.push_back(n % 2 ? upper : (upper + *std::max_element(draw.begin(), middle)) / 2);
  }
  std::sort(medians.begin(), medians.end());
  const double tail = (1 - confidence) / 2;
  return {sorted_quantile(medians, tail), sorted_quantile(medians, 1 - tail)};
}

std::vector<size_t> outliers(std::span<const double> samples) {
  std::vector<size_t> flagged;
  if (samples.empty()) return flagged;
  const double m = median(samples);
  const double limit = kOutlierSigmas * kMadToSigma * median_absolute_deviation(samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (std::abs(samples[i] - m) > limit) flagged.push_back(i);
  }
  return flagged;
}

Summary summarise(std::span<const double> samples, uint64_t seed) {
  const std::vector<double> s = sorted(samples);
  return {.n = s.size(),
          .median = sorted_quantile(s, 0.5),
          .mean = mean(s),
          .stddev = sample_stddev(s),
          .min = s.front(),
          .max = s.back(),
          .p5 = sorted_quantile(s, 0.05),
          .p95 = sorted_quantile(s, 0.95),
          .mad = median_absolute_deviation(s),
          .median_ci = bootstrap_median(samples, seed),
          .n_outliers = outliers(s).size()};
}

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t Random::below(uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
}

}  // namespace fathom::measure

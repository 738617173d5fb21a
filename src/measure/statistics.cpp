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
constexpr size_t kExactKendall = 25;
constexpr size_t kExactRankSum = 25;

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

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// How the values 0, 1, 2... of a rank statistic are distributed when nothing is going on: weights
// that need not be normalised.
using Ways = std::vector<double>;

// The smallest t with P(T <= t) >= p.
size_t quantile_of(const Ways& ways, double p) {
  const double all = std::accumulate(ways.begin(), ways.end(), 0.0);
  double below = 0;
  for (size_t t = 0; t < ways.size(); ++t) {
    below += ways[t];
    if (below / all >= p) return t;
  }
  return ways.size() - 1;
}

// The same of a normal statistic, with the continuity correction.
size_t normal_quantile_of(double mu, double sigma, double p) {
  return static_cast<size_t>(std::max(0.0, std::ceil(mu + normal_quantile(p) * sigma - 0.5)));
}

// Subsets of the ranks 1..n that add up to t.
Ways signed_rank_ways(size_t n) {
  const size_t total = n * (n + 1) / 2;
  Ways ways(total + 1, 0.0);
  ways[0] = 1;
  for (size_t rank = 1; rank <= n; ++rank) {
    for (size_t t = total; t >= rank; --t) ways[t] += ways[t - rank];
  }
  return ways;
}

// Permutations of n with t inversions, as shares: each factor 1 + q + ... + q^(k-1) is divided by
// k.
Ways inversion_ways(size_t n) {
  Ways ways{1};
  for (size_t k = 2; k <= n; ++k) {
    Ways next(ways.size() + k - 1, 0.0);
    for (size_t t = 0; t < ways.size(); ++t) {
      for (size_t j = 0; j < k; ++j) next[t + j] += ways[t] / static_cast<double>(k);
    }
    ways = std::move(next);
  }
  return ways;
}

// Orders of n and m values in which u pairs are inverted: the Gaussian binomial.
Ways rank_sum_ways(size_t n, size_t m) {
  Ways ways(n * m + 1, 0.0);
  ways[0] = 1;
  for (size_t i = 1; i <= m; ++i) {  // times (1 - q^(n+i)) / (1 - q^i)
    for (size_t t = n * m; t + 1 > n + i; --t) ways[t] -= ways[t - n - i];
    for (size_t t = i; t <= n * m; ++t) ways[t] += ways[t - i];
  }
  return ways;
}

size_t signed_rank_quantile(size_t n, double p) {
  if (n <= kExactWilcoxon) return quantile_of(signed_rank_ways(n), p);
  const double sigma = std::sqrt(static_cast<double>(n * (n + 1) * (2 * n + 1)) / 24);
  return normal_quantile_of(static_cast<double>(n * (n + 1)) / 4, sigma, p);
}

size_t rank_sum_quantile(size_t n, size_t m, double p) {
  if (std::max(n, m) <= kExactRankSum) return quantile_of(rank_sum_ways(n, m), p);
  const double sigma = std::sqrt(static_cast<double>(n * m * (n + m + 1)) / 12);
  return normal_quantile_of(static_cast<double>(n * m) / 2, sigma, p);
}

size_t kendall_quantile(size_t n, double p) {
  if (n <= kExactKendall) return quantile_of(inversion_ways(n), p);
  const double sigma = std::sqrt(static_cast<double>(n * (n - 1) * (2 * n + 5)) / 72);
  return normal_quantile_of(static_cast<double>(n * (n - 1)) / 4, sigma, p);
}

// The values that the test with this quantile does not refuse, of a sorted list.
Interval inner(const std::vector<double>& sorted_values, size_t quantile) {
  const size_t q = std::clamp<size_t>(quantile, 1, (sorted_values.size() + 1) / 2);
  return {sorted_values[q - 1], sorted_values[sorted_values.size() - q]};
}

// Ranks from 1 on, equal values sharing the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t from = 0; from < order.size();) {
    size_t to = from;
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    for (size_t i = from; i < to; ++i) ranks[order[i]] = static_cast<double>(from + to + 1) / 2;
    from = to;
  }
  return ranks;
}

// Sum of t^3 - t over the groups of equal values: what ties take from the variance of ranks.
double tie_term(const std::vector<double>& values) {
  std::vector<double> s = values;
  std::sort(s.begin(), s.end());
  double sum = 0;
  for (size_t from = 0; from < s.size();) {
    size_t to = from;
    while (to < s.size() && s[to] == s[from]) ++to;
    const double t = static_cast<double>(to - from);
    sum += t * t * t - t;
    from = to;
  }
  return sum;
}

// Two-sided p of a statistic whose distribution is symmetric around mu.
double two_sided_exact(const Ways& ways, double statistic) {
  const double all = std::accumulate(ways.begin(), ways.end(), 0.0);
  const double mu = static_cast<double>(ways.size() - 1) / 2;
  const double low = mu - std::abs(statistic - mu);
  double below = 0;
  for (size_t t = 0; static_cast<double>(t) <= low; ++t) below += ways[t];
  return std::min(1.0, 2 * below / all);
}

double two_sided_normal(double statistic, double mu, double variance) {
  if (variance <= 0) return 1;
  return std::min(
      1.0, 2 * normal_cdf(-std::max(0.0, std::abs(statistic - mu) - 0.5) / std::sqrt(variance)));
}

std::vector<double> pairwise_slopes(std::span<const double> x, std::span<const double> y) {
  FATHOM_CHECK(x.size() == y.size(), "Theil-Sen needs pairs");
  std::vector<double> slopes;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i + 1; j < x.size(); ++j) {
      if (x[i] != x[j]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
    }
  }
  return sorted(slopes);
}

std::vector<double> pairwise_differences(std::span<const double> x, std::span<const double> y) {
  std::vector<double> differences;
  differences.reserve(x.size() * y.size());
  for (const double a : x) {
    for (const double b : y) differences.push_back(b - a);
  }
  return sorted(differences);
}

// Median by selection; reorders its argument.
double fast_median(std::vector<double>& values) {
  const size_t n = values.size();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(values.begin(), middle, values.end());
  const double upper = *middle;
  return n % 2 ? upper : (upper + *std::max_element(values.begin(), middle)) / 2;
}

// How fast the spread of the statistic changes with its value, from leaving out one round each.
double jackknife_acceleration(std::span<const double> a, std::span<const double> b) {
  std::vector<double> left_out;
  for (size_t skip = 0; skip < a.size(); ++skip) {
    std::vector<double> x, y;
    for (size_t i = 0; i < a.size(); ++i) {
      if (i == skip) continue;
      x.push_back(a[i]);
      y.push_back(b[i]);
    }
    left_out.push_back(fast_median(y) / fast_median(x));
  }
  const double centre = mean(left_out);
  double squares = 0, cubes = 0;
  for (const double value : left_out) {
    const double d = centre - value;
    squares += d * d;
    cubes += d * d * d;
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
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
  return inner(walsh_averages(samples), signed_rank_quantile(samples.size(), (1 - confidence) / 2));
}

double signed_rank_p(std::span<const double> samples) {
  std::vector<double> sizes;
  for (const double x : samples) {
    if (x != 0) sizes.push_back(std::abs(x));
  }
  if (sizes.empty()) return 1;
  const std::vector<double> ranks = ranks_of(sizes);
  double positive = 0;
  size_t at = 0;
  for (const double x : samples) {
    if (x == 0) continue;
    if (x > 0) positive += ranks[at];
    ++at;
  }
  const double ties = tie_term(sizes);
  const size_t n = sizes.size();
  if (ties == 0 && n <= kExactWilcoxon) return two_sided_exact(signed_rank_ways(n), positive);
  const double size = static_cast<double>(n);
  return two_sided_normal(positive, size * (size + 1) / 4,
                          size * (size + 1) * (2 * size + 1) / 24 - ties / 48);
}

double shift(std::span<const double> x, std::span<const double> y) {
  return sorted_quantile(pairwise_differences(x, y), 0.5);
}

Interval shift_interval(std::span<const double> x, std::span<const double> y, double confidence) {
  return inner(pairwise_differences(x, y),
               rank_sum_quantile(x.size(), y.size(), (1 - confidence) / 2));
}

double rank_sum_p(std::span<const double> x, std::span<const double> y) {
  FATHOM_CHECK(!x.empty() && !y.empty(), "a statistic needs a sample");
  std::vector<double> all(x.begin(), x.end());
  all.insert(all.end(), y.begin(), y.end());
  const std::vector<double> ranks = ranks_of(all);
  const double n = static_cast<double>(x.size()), m = static_cast<double>(y.size());
  const double u = std::accumulate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(n),
                                   -n * (n + 1) / 2);
  const double ties = tie_term(all);
  if (ties == 0 && std::max(x.size(), y.size()) <= kExactRankSum) {
    return two_sided_exact(rank_sum_ways(x.size(), y.size()), u);
  }
  const double both = n + m;
  return two_sided_normal(u, n * m / 2, n * m / 12 * (both + 1 - ties / (both * (both - 1))));
}

double theil_sen_slope(std::span<const double> x, std::span<const double> y) {
  return sorted_quantile(pairwise_slopes(x, y), 0.5);
}

Interval theil_sen_interval(std::span<const double> x, std::span<const double> y,
                            double confidence) {
  return inner(pairwise_slopes(x, y), kendall_quantile(x.size(), (1 - confidence) / 2));
}

std::vector<double> holm(std::span<const double> p_values) {
  const size_t n = p_values.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(n);
  double largest = 0;
  for (size_t place = 0; place < n; ++place) {
    const double p = static_cast<double>(n - place) * p_values[order[place]];
    largest = std::max(largest, std::min(1.0, p));
    adjusted[order[place]] = largest;
  }
  return adjusted;
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
    medians.push_back(fast_median(draw));
  }
  std::sort(medians.begin(), medians.end());
  const double tail = (1 - confidence) / 2;
  return {sorted_quantile(medians, tail), sorted_quantile(medians, 1 - tail)};
}

Interval bootstrap_ratio(std::span<const double> a, std::span<const double> b, uint64_t seed,
                         double confidence, int resamples) {
  FATHOM_CHECK(a.size() == b.size() && !a.empty(), "a ratio of medians needs pairs");
  Random random(seed);
  const size_t n = a.size();
  std::vector<double> x(n), y(n), ratios;
  ratios.reserve(static_cast<size_t>(resamples));
  for (int draw = 0; draw < resamples; ++draw) {
    for (size_t i = 0; i < n; ++i) {
      const size_t round = random.below(n);
      x[i] = a[round];
      y[i] = b[round];
    }
    ratios.push_back(fast_median(y) / fast_median(x));
  }
  std::sort(ratios.begin(), ratios.end());
  const double tail = (1 - confidence) / 2;
  if (n < kBcaSamples) return {sorted_quantile(ratios, tail), sorted_quantile(ratios, 1 - tail)};

  const double estimate = median(b) / median(a);
  double below = 0;
  for (const double ratio : ratios) below += ratio < estimate ? 1 : ratio == estimate ? 0.5 : 0;
  const double share = std::clamp(below / static_cast<double>(resamples), 1e-4, 1 - 1e-4);
  const double bias = normal_quantile(share);
  const double acceleration = jackknife_acceleration(a, b);
  const auto at = [&](double p) {
    const double z = bias + normal_quantile(p);
    return sorted_quantile(ratios, normal_cdf(bias + z / (1 - acceleration * z)));
  };
  return {at(tail), at(1 - tail)};
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

// SPDX-License-Identifier: Apache-2.0
// The incomplete beta function by its continued fraction, and the mean squares.
#include "measure/spread.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.hpp"

namespace fathom::measure {
namespace {

constexpr int kMostTerms = 100'000;
constexpr double kTiny = 1e-300;

// The continued fraction of I_x(a, b), by the modified Lentz method; converges fast for x below
// (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  const auto away = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), out = d;
  for (int m = 1; m < kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + even * d);
    c = away(1 + even / c);
    out *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + odd * d);
    c = away(1 + odd / c);
    out *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return out;
}

// The distribution function of Beta(a, b).
double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double scale = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return scale * beta_fraction(x, a, b) / a;
  return 1 - scale * beta_fraction(1 - x, b, a) / b;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double harrell_davis(std::span<const double> samples, double p) {
  FATHOM_CHECK(!samples.empty() && p > 0 && p < 1, "a quantile needs a sample");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double n = static_cast<double>(sorted.size());
  double out = 0, below = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double upto =
        incomplete_beta(static_cast<double>(i + 1) / n, (n + 1) * p, (n + 1) * (1 - p));
    out += (upto - below) * sorted[i];
    below = upto;
  }
  return out;
}

std::optional<double> tail_quantile(std::span<const double> samples, double p) {
  // 1 - p is not exact.
  if (static_cast<double>(samples.size()) * (1 - p) < 10 - 1e-6) return {};
  return harrell_davis(samples, p);
}

std::vector<double> variance_components(std::span<const double> samples,
                                        std::span<const size_t> counts) {
  const size_t n =
      std::accumulate(counts.begin(), counts.end(), size_t{1}, std::multiplies<size_t>());
  FATHOM_CHECK(!counts.empty() && n > 0 && n == samples.size(), "the design is not balanced");
  std::vector<double> out(counts.size(), 0.0);
  // From the innermost level outwards: `inner` are the means of its groups.
  std::vector<double> inner(samples.begin(), samples.end());
  double below = 0;     // mean square of the level inside
  size_t n_inside = 1;  // samples of one of `inner`
  for (size_t level = counts.size(); level-- > 0;) {
    const size_t width = counts[level];
    std::vector<double> outer;
    double squares = 0;
    for (size_t at = 0; at < inner.size(); at += width) {
      const std::span<const double> group = std::span(inner).subspan(at, width);
      outer.push_back(mean_of(group));
      for (const double value : group) squares += (value - outer.back()) * (value - outer.back());
    }
    if (width > 1) {
      const double freedom = static_cast<double>(inner.size() - outer.size());
      const double inside = static_cast<double>(n_inside);
      const double mean_square = inside * squares / freedom;
      out[level] = std::max(0.0, (mean_square - below) / inside);
      below = mean_square;
    }
    inner = std::move(outer);
    n_inside *= width;
  }
  return out;
}

size_t level_to_raise(std::span<const double> components, std::span<const size_t> counts) {
  FATHOM_CHECK(!counts.empty() && components.size() == counts.size(), "a component for each count");
  size_t best = 0;
  double largest = -1, repeats = 1;
  for (size_t level = 0; level < counts.size(); ++level) {
    repeats *= static_cast<double>(counts[level]);
    if (components[level] / repeats <= largest) continue;
    largest = components[level] / repeats;
    best = level;
  }
  return best;
}

}  // namespace fathom::measure

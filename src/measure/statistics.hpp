// SPDX-License-Identifier: Apache-2.0
// Robust statistics for timings, which are skewed, noisy and never independent:
//   quantiles      linear interpolation between order statistics (Hyndman and Fan, type 7)
//   bootstrap      percentile interval of the median over rounds, seed recorded (Efron 1979)
//   Hodges-Lehmann median of the Walsh averages (x_i + x_j) / 2, i <= j; interval by inverting the
//                  Wilcoxon signed-rank test, exact to n = 25 and normal beyond
//   Theil-Sen      median of the pairwise slopes
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom::measure {

struct Interval {
  double lo;
  double hi;
};

// All of these REQUIRE at least one sample.
double quantile(std::span<const double> samples, double p);
double median(std::span<const double> samples);
double mean(std::span<const double> samples);
double sample_stddev(std::span<const double> samples);  // n - 1 below; 0 for one sample
// Median absolute deviation, not scaled; times 1.4826 it estimates a normal's sigma.
double median_absolute_deviation(std::span<const double> samples);

double hodges_lehmann(std::span<const double> samples);
Interval hodges_lehmann_interval(std::span<const double> samples, double confidence = 0.95);

// REQUIRES: equally long, at least two different x.
double theil_sen_slope(std::span<const double> x, std::span<const double> y);

inline constexpr int kBootstrapResamples = 10'000;
Interval bootstrap_median(std::span<const double> samples, uint64_t seed, double confidence = 0.95,
                          int resamples = kBootstrapResamples);

// Samples farther than 5 * 1.4826 * MAD from the median: flagged, kept and counted.
std::vector<size_t> outliers(std::span<const double> samples);

struct Summary {
  size_t n;
  double median, mean, stddev, min, max, p5, p95, mad;
  Interval median_ci;  // 95 %
  size_t n_outliers;
};
Summary summarise(std::span<const double> samples, uint64_t seed);

// A small generator with the same sequence everywhere (splitmix64); below() is unbiased to 2^-64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t bound);

 private:
  uint64_t state_;
};

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Robust statistics for timings, which are skewed, noisy and never independent:
//   quantiles      linear interpolation between order statistics (Hyndman and Fan, type 7)
//   bootstrap      percentile interval of the median over rounds, seed recorded (Efron 1979)
//   Hodges-Lehmann median of the Walsh averages (x_i + x_j) / 2, i <= j; interval by inverting the
//                  Wilcoxon signed-rank test, exact to n = 25 and normal beyond
//   two samples    median of the differences y_j - x_i; interval by inverting the Mann-Whitney test
//   Theil-Sen      median of the pairwise slopes; interval by inverting Kendall's test (Sen 1968)
//   ratio          of medians, rounds resampled in pairs; from 20 rounds on bias-corrected and
//                  accelerated (BCa, Efron 1987), percentile below
//   Holm           p-values of a family made comparable with one level (Holm 1979)
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
// Below 6 samples the whole range of the Walsh averages, which 95 % confidence would exceed.
Interval hodges_lehmann_interval(std::span<const double> samples, double confidence = 0.95);
// Two-sided, of the median being 0: signed ranks, exact to n = 25; zeros dropped, ties averaged.
double signed_rank_p(std::span<const double> samples);

// Of y against x, each at least one sample; not paired.
double shift(std::span<const double> x, std::span<const double> y);
Interval shift_interval(std::span<const double> x, std::span<const double> y,
                        double confidence = 0.95);
// Two-sided, of no shift: Mann-Whitney, exact to 25 samples each; ties averaged.
double rank_sum_p(std::span<const double> x, std::span<const double> y);

// REQUIRES: equally long, at least two different x.
double theil_sen_slope(std::span<const double> x, std::span<const double> y);
Interval theil_sen_interval(std::span<const double> x, std::span<const double> y,
                            double confidence = 0.95);

// Adjusted p-values in the order given; each may be set against the level of the family.
std::vector<double> holm(std::span<const double> p_values);

inline constexpr int kBootstrapResamples = 10'000;
Interval bootstrap_median(std::span<const double> samples, uint64_t seed, double confidence = 0.95,
                          int resamples = kBootstrapResamples);

// Of median(b) / median(a), rounds drawn as pairs. REQUIRES: equally long, all of a above 0.
inline constexpr size_t kBcaSamples = 20;
Interval bootstrap_ratio(std::span<const double> a, std::span<const double> b, uint64_t seed,
                         double confidence = 0.95, int resamples = kBootstrapResamples);

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

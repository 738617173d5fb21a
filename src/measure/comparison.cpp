// SPDX-License-Identifier: Apache-2.0
// Everything on logarithms, so that twice as fast and half as fast are equally far from 1.
#include "measure/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

constexpr size_t kLeastOfTwo = 4;  // 4 and 4 values: p = 2/70
constexpr double kUnbiasedWithin = 0.005;

std::vector<double> logs_of(std::span<const double> times) {
  std::vector<double> logs;
  for (const double t : times) {
    FATHOM_CHECK(t > 0, "a time that is not positive");
    logs.push_back(std::log(t));
  }
  return logs;
}

// Values moved towards 0 by the floor: a test of them is a test of a difference beyond it.
std::vector<double> towards_zero(std::vector<double> values, double estimate, double floor) {
  const double by = std::copysign(std::min(std::abs(estimate), std::log1p(floor)), estimate);
  for (double& value : values) value -= by;
  return values;
}

Interval exponent(const Interval& log) { return {std::exp(log.lo), std::exp(log.hi)}; }

bool enough(const Comparison& c) {
  return c.paired ? c.n_a >= kLeastForInterval : std::min(c.n_a, c.n_b) >= kLeastOfTwo;
}

Verdict verdict_of(Comparison& c) {
  const double low = 1 / (1 + c.floor), high = 1 + c.floor;
  if (!enough(c)) {
    c.why = c.paired
                ? fmt::format("{} rounds, {} are needed", c.n_a, kLeastForInterval)
                : fmt::format("{} and {} samples, {} each are needed", c.n_a, c.n_b, kLeastOfTwo);
    return Verdict::cannot_tell;
  }
  if (c.ci.hi < low || c.ci.lo > high) {
    c.why = fmt::format("p = {:.2g}, of {} compared", c.p, c.family);
    if (c.p <= kFamilyLevel) return c.ci.hi < low ? Verdict::faster : Verdict::slower;
    c.why += ": too few samples for so many comparisons";
    return Verdict::cannot_tell;
  }
  if (c.ci.lo >= 1 - kSameRatio && c.ci.hi <= 1 + kSameRatio && c.floor <= kSameRatio) {
    c.why = fmt::format("within {:.0f} %", 100 * kSameRatio);
    return Verdict::same;
  }
  c.why = fmt::format("{:+.2f} to {:+.2f} % of time, the noise floor is {:.2f} %",
                      100 * (c.ci.lo - 1), 100 * (c.ci.hi - 1), 100 * c.floor);
  return Verdict::cannot_tell;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      return "same";
    case Verdict::cannot_tell:
      break;
  }
  return "cannot tell";
}

Comparison compare_paired(std::span<const double> a_ns, std::span<const double> b_ns,
                          double floor) {
  FATHOM_CHECK(a_ns.size() == b_ns.size() && !a_ns.empty(), "pairs of times");
  const std::vector<double> a = logs_of(a_ns);
  std::vector<double> difference = logs_of(b_ns);
  for (size_t i = 0; i < a.size(); ++i) difference[i] -= a[i];
  const double estimate = hodges_lehmann(difference);
  Comparison c{.ratio = std::exp(estimate),
               .ci = exponent(hodges_lehmann_interval(difference)),
               .floor = floor,
               .paired = true,
               .n_a = a.size(),
               .n_b = a.size()};
  c.p = signed_rank_p(towards_zero(difference, estimate, floor));
  return c;
}

Comparison compare_unpaired(std::span<const double> a_ns, std::span<const double> b_ns,
                            double floor) {
  const std::vector<double> a = logs_of(a_ns), b = logs_of(b_ns);
  const double estimate = shift(a, b);
  Comparison c{.ratio = std::exp(estimate),
               .ci = exponent(shift_interval(a, b)),
               .floor = floor,
               .paired = false,
               .n_a = a.size(),
               .n_b = b.size()};
  c.p = rank_sum_p(a, towards_zero(b, estimate, floor));
  return c;
}

void judge(std::vector<Comparison>& family) {
  std::vector<double> p_values;
  for (const Comparison& c : family) p_values.push_back(c.p);
  const std::vector<double> adjusted = holm(p_values);
  for (size_t i = 0; i < family.size(); ++i) {
    family[i].p = adjusted[i];
    family[i].family = family.size();
    family[i].verdict = verdict_of(family[i]);
  }
}

NoiseFloor noise_floor(std::span<const double> arm_ns, std::span<const double> twin_ns) {
  FATHOM_CHECK(arm_ns.size() >= kLeastForInterval, "too few rounds for a noise floor");
  const Comparison c = compare_paired(arm_ns, twin_ns, 0);
  NoiseFloor noise{.ratio = c.ratio, .ci = c.ci};
  noise.floor = std::max(1 / c.ci.lo, c.ci.hi) - 1;
  noise.unbiased = c.ci.lo <= 1 + kUnbiasedWithin && c.ci.hi >= 1 - kUnbiasedWithin;
  return noise;
}

}  // namespace fathom::measure

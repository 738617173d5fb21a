// SPDX-License-Identifier: Apache-2.0
// Alignment, the estimators, the closure and its terms.
#include "measure/attribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.hpp"

namespace fathom::measure {
namespace {

constexpr int kResamples = 1000;

// A quantity in each round.
using Series = std::vector<double>;

Series minus(const Series& a, const Series& b) {
  Series out(std::min(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

// The mean of an arm's two blocks, by round.
template <class Block, class Value>
Series pair_means(const std::vector<BlockPair<Block>>& pairs, const Value& value) {
  Series out;
  for (const BlockPair<Block>& pair : pairs) out.push_back((value(pair[0]) + value(pair[1])) / 2);
  return out;
}

using UntracedPairs = std::vector<BlockPair<UntracedBlock>>;

Series step_series(const UntracedPairs& pairs) {
  return pair_means(pairs, [](const UntracedBlock& b) { return b.step_ns(); });
}
Series untraced_series(const DepthSamples& depth) { return step_series(depth.untraced); }
Series traced_series(const DepthSamples& depth) {
  return pair_means(depth.traced, [](const TracedBlock& b) { return b.step_ns(); });
}
Series period_series(const DepthSamples& depth) {
  return pair_means(depth.traced, [](const TracedBlock& b) { return b.period_ns(); });
}

Series untraced_growth(const Observation& o) {
  return minus(untraced_series(o.hi()), untraced_series(o.lo()));
}
Series period_growth(const Observation& o) {
  return minus(period_series(o.hi()), period_series(o.lo()));
}

Estimate estimate(const Series& series) {
  return {hodges_lehmann(series), hodges_lehmann_interval(series)};
}

Estimate aa_of(const DepthSamples& depth) {
  Series differences;
  for (const BlockPair<UntracedBlock>& pair : depth.untraced) {
    differences.push_back(pair[1].step_ns() - pair[0].step_ns());
  }
  return estimate(differences);
}

double largest(const Interval& interval) {
  return std::max(std::abs(interval.lo), std::abs(interval.hi));
}

// a - b of independent samples.
Estimate difference(const Estimate& a, const Estimate& b) {
  const double value = a.value - b.value;
  return {value,
          {value - std::hypot(a.value - a.interval.lo, b.interval.hi - b.value),
           value + std::hypot(a.interval.hi - a.value, b.value - b.interval.lo)}};
}

// --- The rows: one of exclusive time and one of idle time for each aligned launch.

struct Aligned {
  LaunchGrowth growth;
  Series exclusive_lo, exclusive_hi, gap_lo, gap_hi;  // of a step, by round
};

void add_series(const DepthSamples& depth, size_t place, Series& exclusive, Series& gap) {
  const auto per_step = [place](const std::vector<int64_t>& sums, const TracedBlock& block) {
    return static_cast<double>(sums[place]) / static_cast<double>(block.steps);
  };
  exclusive =
      pair_means(depth.traced, [&](const TracedBlock& b) { return per_step(b.exclusive_ns, b); });
  gap = pair_means(depth.traced, [&](const TracedBlock& b) { return per_step(b.gap_ns, b); });
}

bool same_kernel(const Launch& a, const Launch& b) {
  return a.kernel == b.kernel && a.grid == b.grid && a.block == b.block;
}

std::vector<Aligned> align(const Observation& o) {
  std::map<LaunchKey, size_t> lo_places;
  for (size_t i = 0; i < o.lo().plan.size(); ++i) lo_places[o.lo().plan[i].key] = i;
  const size_t n_rounds = o.lo().traced.size();
  const Series nothing(n_rounds, 0.0);
  std::vector<Aligned> rows;
  for (size_t i = 0; i < o.hi().plan.size(); ++i) {
    const Launch& hi = o.hi().plan[i];
    Aligned& row = rows.emplace_back();
    row.growth.key = hi.key;
    row.growth.kernel_hi = hi.kernel;
    add_series(o.hi(), i, row.exclusive_hi, row.gap_hi);
    const auto found = lo_places.find(hi.key);
    if (found == lo_places.end()) {
      row.growth.match = Match::added;
      row.exclusive_lo = row.gap_lo = nothing;
      continue;
    }
    const Launch& lo = o.lo().plan[found->second];
    row.growth.kernel_lo = lo.kernel;
    row.growth.match = same_kernel(lo, hi) ? Match::matched : Match::replaced;
    add_series(o.lo(), found->second, row.exclusive_lo, row.gap_lo);
    lo_places.erase(found);
  }
  for (const auto& [key, place] : lo_places) {
    Aligned& row = rows.emplace_back();
    row.growth.key = key;
    row.growth.match = Match::removed;
    row.growth.kernel_lo = o.lo().plan[place].kernel;
    row.exclusive_hi = row.gap_hi = nothing;
    add_series(o.lo(), place, row.exclusive_lo, row.gap_lo);
  }
  return rows;
}

// --- Means over the middle half of the rounds, and of resampled rounds.

class MiddleHalf {
 public:
  // `rank` orders the rounds; the same rounds then count for every series.
  MiddleHalf(const Series& rank, uint64_t seed) {
    std::vector<int> all(rank.size());
    std::iota(all.begin(), all.end(), 0);
    kept_ = middle(all, rank);
    Random random(seed);
    for (int i = 0; i < kResamples; ++i) {
      std::vector<int> drawn(rank.size());
      for (int& round : drawn) round = static_cast<int>(random.below(rank.size()));
      resampled_.push_back(middle(std::move(drawn), rank));
    }
  }

  double mean(const Series& series) const { return mean_of(series, kept_); }
  Estimate estimate(const Series& series) const {
    std::vector<double> means;
    for (const std::vector<int>& rounds : resampled_) means.push_back(mean_of(series, rounds));
    return {mean(series), {quantile(means, 0.025), quantile(means, 0.975)}};
  }

 private:
  static std::vector<int> middle(std::vector<int> rounds, const Series& rank) {
    std::sort(rounds.begin(), rounds.end(), [&](int a, int b) {
      return rank[static_cast<size_t>(a)] < rank[static_cast<size_t>(b)];
    });
    const std::ptrdiff_t quarter = static_cast<std::ptrdiff_t>(rounds.size() / 4);
    return {rounds.begin() + quarter, rounds.end() - quarter};
  }
  static double mean_of(const Series& series, const std::vector<int>& rounds) {
    double sum = 0;
    for (const int round : rounds) sum += series[static_cast<size_t>(round)];
    return sum / static_cast<double>(rounds.size());
  }

  std::vector<int> kept_;
  std::vector<std::vector<int>> resampled_;
};

void add_to(Series& sum, const Series& series) {
  if (sum.empty()) sum.resize(series.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += series[i];
}

void fill_rows(Attribution& out, std::vector<Aligned>& rows, const MiddleHalf& middle) {
  struct OpSum {
    OpGrowth growth;
    Series exclusive, gap;
  };
  std::vector<OpSum> ops;
  Series gaps;
  int n_layers = 0;
  for (const Aligned& row : rows) n_layers = std::max(n_layers, row.growth.key.layer + 1);
  for (Aligned& row : rows) {
    LaunchGrowth& launch = row.growth;
    const Series exclusive = minus(row.exclusive_hi, row.exclusive_lo);
    const Series gap = minus(row.gap_hi, row.gap_lo);
    launch.lo_ns = middle.mean(row.exclusive_lo);
    launch.hi_ns = middle.mean(row.exclusive_hi);
    launch.gap_lo_ns = middle.mean(row.gap_lo);
    launch.gap_hi_ns = middle.mean(row.gap_hi);
    launch.growth = middle.estimate(exclusive);
    launch.gap_growth = middle.estimate(gap);
    add_to(gaps, gap);
    out.gaps_lo_ns += launch.gap_lo_ns;
    out.gaps_hi_ns += launch.gap_hi_ns;

    auto found = std::find_if(ops.begin(), ops.end(),
                              [&](const OpSum& sum) { return sum.growth.op == launch.key.op; });
    if (found == ops.end()) {
      found = ops.emplace(ops.end());
      found->growth.op = launch.key.op;
      found->growth.match = launch.match;
      found->growth.layer_growth_ns.resize(static_cast<size_t>(n_layers));
    }
    OpGrowth& op = found->growth;
    if (op.match != launch.match) op.match = Match::replaced;
    op.launches_lo += launch.match != Match::added;
    op.launches_hi += launch.match != Match::removed;
    op.lo_ns += launch.lo_ns;
    op.hi_ns += launch.hi_ns;
    op.gap_lo_ns += launch.gap_lo_ns;
    op.gap_hi_ns += launch.gap_hi_ns;
    if (launch.key.layer >= 0) {
      op.layer_growth_ns[static_cast<size_t>(launch.key.layer)] += launch.growth.value;
    }
    add_to(found->exclusive, exclusive);
    add_to(found->gap, gap);
    out.launches.push_back(launch);
  }
  for (OpSum& sum : ops) {
    sum.growth.growth = middle.estimate(sum.exclusive);
    sum.growth.gap_growth = middle.estimate(sum.gap);
    out.ops.push_back(std::move(sum.growth));
  }
  out.gaps = middle.estimate(gaps);
  const auto larger = [](const auto& a, const auto& b) { return a.growth.value > b.growth.value; };
  std::stable_sort(out.launches.begin(), out.launches.end(), larger);
  std::stable_sort(out.ops.begin(), out.ops.end(), larger);
}

// --- The closure.

void set_limit(Closure& closure) {
  const double share = kClosureShare * std::abs(closure.growth.value);
  closure.limit_ns = std::max({share, kClosureNs, closure.aa_floor_ns});
  closure.limit_why = closure.limit_ns == share        ? "2 % of the growth"
                      : closure.limit_ns == kClosureNs ? "0.5 us"
                                                       : "the A/A floor";
}

// The residual's parts, which add up to it.
std::vector<Term> terms_of(const Observation& o, const Closure& closure) {
  const auto centre = [](const Series& series) { return hodges_lehmann(series); };
  const double watching_lo = centre(minus(traced_series(o.lo()), untraced_series(o.lo())));
  const double watching_hi = centre(minus(traced_series(o.hi()), untraced_series(o.hi())));
  const double outside_lo = centre(minus(traced_series(o.lo()), period_series(o.lo())));
  const double outside_hi = centre(minus(traced_series(o.hi()), period_series(o.hi())));
  const double traced_growth = centre(minus(traced_series(o.hi()), traced_series(o.lo())));
  std::vector<Term> terms{
      {fmt::format("watched steps take {:+.2f} us at the first depth and {:+.2f} us at the last "
                   "one against unwatched ones",
                   watching_lo * 1e-3, watching_hi * 1e-3),
       closure.growth.value - traced_growth},
      {fmt::format("the records leave out {:.2f} us of a watched step at the first depth and "
                   "{:.2f} us at the last one",
                   outside_lo * 1e-3, outside_hi * 1e-3),
       traced_growth - (closure.sum.value - closure.correction_ns)}};
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return std::abs(a.ns) > std::abs(b.ns); });
  return terms;
}

Closure closure_of(const Observation& o, const Attribution& figures, const MiddleHalf& middle) {
  Closure closure;
  closure.unwatched_ns[0] = median(untraced_series(o.lo()));
  closure.unwatched_ns[1] = median(untraced_series(o.hi()));
  closure.growth = estimate(untraced_growth(o));
  closure.aa_floor_ns = std::max(largest(figures.aa[0].interval), largest(figures.aa[1].interval));
  const Series sums = period_growth(o);
  closure.sum = middle.estimate(sums);

  const double n_lo = static_cast<double>(o.lo().plan.size());
  const double n_hi = static_cast<double>(o.hi().plan.size());
  const double watching = hodges_lehmann(minus(traced_series(o.lo()), untraced_series(o.lo())));
  closure.per_launch_ns = watching / n_lo;
  closure.correction_ns = std::max(0.0, closure.per_launch_ns) * (n_hi - n_lo);

  closure.residual = o.is_apart() ? difference(closure.growth, closure.sum)
                                  : estimate(minus(untraced_growth(o), sums));
  closure.residual.value = closure.growth.value - (closure.sum.value - closure.correction_ns);
  closure.residual.interval.lo += closure.correction_ns;
  closure.residual.interval.hi += closure.correction_ns;
  set_limit(closure);
  closure.limit_ns += std::abs(closure.correction_ns);
  closure.closes = std::abs(closure.residual.value) <= closure.limit_ns;
  closure.precise = closure.residual.half_width() <= closure.limit_ns;
  closure.terms = terms_of(o, closure);
  return closure;
}

// The largest relative difference between the median clocks of the arms.
double clock_drift_of(const Observation& o) {
  std::vector<double> medians;
  const auto add = [&](const auto& pairs) {
    std::vector<double> clocks;
    for (const auto& pair : pairs) {
      for (const auto& block : pair) clocks.push_back(block.clock);
    }
    if (!clocks.empty()) medians.push_back(median(clocks));
  };
  for (const DepthSamples& depth : o.depths) {
    add(depth.untraced);
    add(depth.traced);
  }
  const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  return *least > 0 ? *most / *least - 1 : -1;
}

double overhead_of(const DepthSamples& depth) {
  Series ratios;
  const Series traced = traced_series(depth), unwatched = untraced_series(depth);
  for (size_t i = 0; i < std::min(traced.size(), unwatched.size()); ++i) {
    ratios.push_back(traced[i] / unwatched[i]);
  }
  return hodges_lehmann(ratios) - 1;
}

Line line_through(const std::vector<int64_t>& tokens, const std::vector<double>& ns) {
  const double n = static_cast<double>(ns.size());
  double x_mean = 0, y_mean = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < ns.size(); ++i) {
    x_mean += static_cast<double>(tokens[i]) / n;
    y_mean += ns[i] / n;
  }
  for (size_t i = 0; i < ns.size(); ++i) {
    const double dx = static_cast<double>(tokens[i]) - x_mean;
    xx += dx * dx;
    xy += dx * (ns[i] - y_mean);
  }
  Line line;
  line.slope_ns = xy / xx;
  line.intercept_ns = y_mean - line.slope_ns * x_mean;
  for (size_t i = 0; i < ns.size(); ++i) {
    line.residual_ns.push_back(ns[i] - line.intercept_ns -
                               line.slope_ns * static_cast<double>(tokens[i]));
  }
  return line;
}

double overlap_of(const DepthSamples& depth, const MiddleHalf& middle) {
  return middle.mean(pair_means(depth.traced, [](const TracedBlock& block) {
    const int64_t exclusive =
        std::accumulate(block.exclusive_ns.begin(), block.exclusive_ns.end(), int64_t{0});
    return static_cast<double>(block.busy_ns - exclusive) / static_cast<double>(block.steps);
  }));
}

// `part`: how much of what R may have belongs to the series.
bool narrow(const Series& series, double growth_ns, double part = 1) {
  const Estimate e = estimate(series);
  return e.half_width() <= part * std::max(kClosureShare * std::abs(growth_ns), kClosureNs);
}

}  // namespace

const char* match_name(Match match) {
  constexpr const char* kNames[] = {"matched", "replaced", "added", "removed"};
  return kNames[static_cast<int>(match)];
}

Attribution attribute(const Observation& o, const std::vector<int64_t>& kv_tokens) {
  FATHOM_CHECK(o.problem.empty() && !o.lo().untraced.empty() && !o.lo().traced.empty() &&
                   o.lo().traced.size() == o.hi().traced.size(),
               "an attribution needs rounds with and without a watcher");
  Attribution out;
  for (const DepthSamples& depth : o.depths) {
    const Series series = untraced_series(depth);
    out.untraced_ns.push_back(median(series));
    out.untraced_ci.push_back(bootstrap_median(series, o.seed, 0.95, kResamples));
  }
  const DepthSamples* anchors[] = {&o.lo(), &o.hi()};
  for (size_t i : {size_t{0}, size_t{1}}) {
    out.overhead[i] = overhead_of(*anchors[i]);
    out.aa[i] = aa_of(*anchors[i]);
  }
  out.clock_drift = clock_drift_of(o);
  const MiddleHalf middle(period_growth(o), o.seed);
  std::vector<Aligned> rows = align(o);
  fill_rows(out, rows, middle);
  out.overlap_lo_ns = overlap_of(o.lo(), middle);
  out.overlap_hi_ns = overlap_of(o.hi(), middle);
  out.closure = closure_of(o, out, middle);
  out.line = line_through(kv_tokens, out.untraced_ns);
  return out;
}

bool residual_is_precise(const Observation& o) {
  const Series growth = untraced_growth(o);
  return narrow(minus(growth, period_growth(o)), hodges_lehmann(growth));
}

bool part_is_precise(const Observation& o) {
  const Series growth = o.lo().traced.empty() ? untraced_growth(o) : period_growth(o);
  return narrow(growth, hodges_lehmann(growth), std::sqrt(0.5));
}

}  // namespace fathom::measure

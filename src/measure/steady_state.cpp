// SPDX-License-Identifier: Apache-2.0
// Spikes levelled for the cutting alone, the best cuts by dynamic programming, then the classes.
#include "measure/steady_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace fathom::measure {
namespace {

constexpr double kMadToSigma = 1.4826;
constexpr double kSpikeSigmas = 5;
constexpr size_t kSpikeReach = 2;     // values looked at on either side
constexpr size_t kShortestPiece = 3;  // values
constexpr size_t kSettledShare = 4;   // the last piece holds at least 1/4 of the values
constexpr double kLeastSigma = 1e-4;  // of the median: what a clock's steps alone can do

double noise_of(std::span<const double> x) {
  std::vector<double> steps;
  for (size_t i = 1; i < x.size(); ++i) steps.push_back(x[i] - x[i - 1]);
  const double sigma = kMadToSigma * median_absolute_deviation(steps) / std::sqrt(2.0);
  return std::max(sigma, kLeastSigma * std::abs(median(x)));
}

// Values far from the median of their neighbourhood are set to it (Hampel's filter): a spike of one
// or two values is an outlier, not a level.
std::vector<double> without_spikes(std::span<const double> x, double sigma) {
  std::vector<double> out(x.begin(), x.end());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t from =
        std::min(i < kSpikeReach ? 0 : i - kSpikeReach, x.size() - (2 * kSpikeReach + 1));
    const double centre = median(x.subspan(from, 2 * kSpikeReach + 1));
    if (std::abs(x[i] - centre) > kSpikeSigmas * sigma) out[i] = centre;
  }
  return out;
}

// Where the pieces of the cheapest partition begin.
std::vector<size_t> best_cuts(const std::vector<double>& x, double sigma) {
  const size_t n = x.size();
  const double centre = median(x);
  std::vector<double> sum(n + 1, 0), squares(n + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    const double z = (x[i] - centre) / sigma;
    sum[i + 1] = sum[i] + z;
    squares[i + 1] = squares[i] + z * z;
  }
  const auto cost = [&](size_t from, size_t to) {
    const double total = sum[to] - sum[from];
    return squares[to] - squares[from] - total * total / static_cast<double>(to - from);
  };
  const double penalty = 2 * std::log(static_cast<double>(n));
  std::vector<double> best(n + 1, HUGE_VAL);
  std::vector<size_t> begin(n + 1, 0);
  best[0] = -penalty;
  for (size_t to = kShortestPiece; to <= n; ++to) {
    for (size_t from = 0; from + kShortestPiece <= to; ++from) {
      const double total = best[from] + penalty + cost(from, to);
      if (total >= best[to]) continue;
      best[to] = total;
      begin[to] = from;
    }
  }
  std::vector<size_t> starts;
  for (size_t to = n; to > 0; to = begin[to]) starts.push_back(begin[to]);
  std::reverse(starts.begin(), starts.end());
  return starts;
}

bool same_level(double a, double b) { return std::abs(a - b) <= kSameLevel * b; }

// Pieces whose levels are the same are one.
void join_equal(std::vector<size_t>& starts, std::span<const double> x,
                std::vector<double>& levels) {
  const auto level_from = [&](size_t piece) {
    const size_t end = piece + 1 < starts.size() ? starts[piece + 1] : x.size();
    return median(x.subspan(starts[piece], end - starts[piece]));
  };
  for (size_t piece = starts.size() - 1; piece > 0; --piece) {
    if (same_level(level_from(piece - 1), level_from(piece))) {
      starts.erase(starts.begin() + static_cast<std::ptrdiff_t>(piece));
    }
  }
  levels.clear();
  for (size_t piece = 0; piece < starts.size(); ++piece) levels.push_back(level_from(piece));
}

Interval relative_slope(std::span<const double> x) {
  std::vector<double> place(x.size());
  std::iota(place.begin(), place.end(), 0.0);
  const Interval slope = theil_sen_interval(place, x);
  const double level = median(x);
  return {slope.lo / level, slope.hi / level};
}

Steadiness class_of(const std::vector<double>& levels) {
  bool was_slower = false, was_faster = false;
  for (const double level : levels) {
    was_slower |= level > levels.back() && !same_level(level, levels.back());
    was_faster |= level < levels.back() && !same_level(level, levels.back());
  }
  if (was_faster) return Steadiness::slowdown;
  return was_slower ? Steadiness::warm_up : Steadiness::flat;
}

}  // namespace

const char* steadiness_name(Steadiness steadiness) {
  switch (steadiness) {
    case Steadiness::flat:
      return "flat";
    case Steadiness::warm_up:
      return "warm-up";
    case Steadiness::slowdown:
      return "slowdown";
    case Steadiness::none:
      break;
  }
  return "none";
}

SteadyState find_steady_state(std::span<const double> values) {
  SteadyState state;
  if (values.size() < kSteadySamples) {
    state.why = fmt::format("{} values, {} are needed to judge", values.size(), kSteadySamples);
    return state;
  }
  const double sigma = noise_of(values);
  const std::vector<double> smooth = without_spikes(values, sigma);
  state.starts = best_cuts(smooth, sigma);
  join_equal(state.starts, smooth, state.levels);
  const std::span<const double> last = std::span(smooth).subspan(state.starts.back());
  state.slope = relative_slope(last);
  // A trend that stays within one level over the whole piece is none.
  const double middle = (state.slope.lo + state.slope.hi) / 2;
  const bool moves = std::abs(middle) * static_cast<double>(last.size() - 1) > kSameLevel;
  const bool rises = state.slope.lo > 0 && moves;
  const bool falls = state.slope.hi < 0 && moves;
  if (last.size() * kSettledShare < values.size()) {
    state.steadiness = Steadiness::none;
    state.why =
        fmt::format("the last level holds only {} of {} values", last.size(), values.size());
  } else if (rises || falls) {
    state.steadiness = Steadiness::none;
    state.why = fmt::format("the last {} values still {} by {:.2f} to {:.2f} % each", last.size(),
                            rises ? "rise" : "fall", 100 * state.slope.lo, 100 * state.slope.hi);
  } else {
    state.steadiness = class_of(state.levels);
    state.why = state.levels.size() == 1
                    ? fmt::format("one level over {} values", values.size())
                    : fmt::format("{} levels, the last from value {} on, {:+.1f} % of the first",
                                  state.levels.size(), state.starts.back() + 1,
                                  100 * (state.levels.back() / state.levels.front() - 1));
  }
  return state;
}

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// The shuffled rounds and when they end, the flags of their samples, and the warm-up that ends when
// three runs in a row agree.
#include "measure/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "measure/clock.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr double kStolenShare = 0.05;
constexpr double kContendedShare = 0.10;
constexpr size_t kIntervalRounds = 6;  // fewer have no 95 % interval

std::vector<int> shuffled(size_t n, Random& random) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

// What happened between two looks at the machine.
unsigned flags_between(const SampleState& before, const SampleState& after, int64_t duration_ns) {
  unsigned flags = 0;
  const auto grew = [&](const std::optional<int64_t>& from, const std::optional<int64_t>& to,
                        double share) {
    return from && to &&
           static_cast<double>(*to - *from) > share * static_cast<double>(duration_ns);
  };
  if (before.throttle_bits.value_or(0) || after.throttle_bits.value_or(0)) flags |= kFlagThrottled;
  if (grew(before.steal_ns, after.steal_ns, kStolenShare)) flags |= kFlagStolen;
  if (grew(before.pressure_ns, after.pressure_ns, kContendedShare)) flags |= kFlagContended;
  return flags;
}

Sample take_sample(const Arm& arm, const RoundsOptions& options, int64_t began_ns) {
  Sample sample;
  const SampleState before = options.state ? options.state() : SampleState{};
  const int64_t start = now_ns();
  sample.value = arm.run();
  sample.duration_ns = now_ns() - start;
  const SampleState after = options.state ? options.state() : SampleState{};
  sample.start_ns = start - began_ns;
  sample.clock_mhz = after.clock_mhz;
  sample.flags = flags_between(before, after, sample.duration_ns);
  return sample;
}

// Why the rounds end now; nothing while they go on.
std::optional<StopReason> stop_now(const Rounds& rounds, const std::vector<Arm>& arms,
                                   const RoundsOptions& options, double seconds) {
  const size_t done = rounds.order.size();
  if (done < static_cast<size_t>(options.n_rounds)) return {};
  if (!options.until) return StopReason::fixed_rounds;
  if (done < kIntervalRounds) return {};
  bool narrow = true;
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    narrow = narrow && (arms[arm].control ||
                        relative_half_width(rounds.values[arm]) <= options.until->half_width);
  }
  if (narrow) return StopReason::interval;
  if (seconds > options.until->max_seconds) return StopReason::time_cap;
  if (done >= static_cast<size_t>(options.until->most_rounds)) return StopReason::most_rounds;
  return {};
}

}  // namespace

std::vector<std::vector<std::string>> outlier_flags(std::span<const double> values) {
  std::vector<std::vector<std::string>> out(values.size());
  for (const size_t i : outliers(values)) out[i] = flag_names(kFlagOutlier);
  return out;
}

std::vector<std::string> flag_names(unsigned flags) {
  std::vector<std::string> names;
  if (flags & kFlagOutlier) names.push_back("outlier");
  if (flags & kFlagThrottled) names.push_back("throttled");
  if (flags & kFlagClockDrift) names.push_back("clock_drift");
  if (flags & kFlagStolen) names.push_back("stolen");
  if (flags & kFlagContended) names.push_back("contended");
  return names;
}

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::fixed_rounds:
      return "fixed n";
    case StopReason::interval:
      return "interval";
    case StopReason::time_cap:
      return "time cap";
    case StopReason::most_rounds:
      break;
  }
  return "most rounds";
}

double relative_half_width(const std::vector<double>& values) {
  if (values.size() < kIntervalRounds) return HUGE_VAL;
  std::vector<double> logs;
  for (const double value : values) {
    if (!(value > 0)) return HUGE_VAL;
    logs.push_back(std::log(value));
  }
  const Interval interval = hodges_lehmann_interval(logs);
  return (interval.hi - interval.lo) / 2;
}

void flag_samples(std::vector<Sample>& samples) {
  std::vector<double> clocks;
  int n_arms = 0;
  for (const Sample& sample : samples) {
    if (sample.clock_mhz) clocks.push_back(*sample.clock_mhz);
    n_arms = std::max(n_arms, sample.arm + 1);
  }
  if (!clocks.empty()) {
    const double usual = median(clocks);
    for (Sample& sample : samples) {
      if (!sample.clock_mhz || std::abs(*sample.clock_mhz - usual) <= kClockDrift * usual) continue;
      sample.flags |= kFlagClockDrift;
    }
  }
  for (int arm = 0; arm < n_arms; ++arm) {
    std::vector<size_t> places;
    std::vector<double> values;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].arm != arm) continue;
      places.push_back(i);
      values.push_back(samples[i].value);
    }
    for (const size_t i : outliers(values)) samples[places[i]].flags |= kFlagOutlier;
  }
}

Rounds run_rounds(const std::vector<Arm>& given, const RoundsOptions& options) {
  Rounds result;
  result.seed = options.seed;
  std::vector<Arm> arms = given;
  if (options.aa_arm) {
    result.aa_arm = options.aa_arm;
    result.aa_twin = arms.size();
    Arm twin = arms.at(*options.aa_arm);
    twin.name += " (A/A)";
    arms.push_back(std::move(twin));
  }
  for (const Arm& arm : arms) result.arms.push_back(arm.name);
  result.values.resize(arms.size());

  Random random(options.seed);
  const int total = options.n_rounds * static_cast<int>(arms.size());
  int done = 0;
  const int64_t began = now_ns();
  std::optional<StopReason> stop;
  if (options.n_rounds <= 0 && !options.until) stop = StopReason::fixed_rounds;
  while (!stop) {
    const int round = static_cast<int>(result.order.size());
    const std::vector<int> order = shuffled(arms.size(), random);
    for (size_t place = 0; place < order.size(); ++place) {
      if (options.cancel && options.cancel->load()) {
        fail(ErrorCode::cancelled, "interrupted in round {}", round + 1);
      }
      const size_t arm = static_cast<size_t>(order[place]);
      Sample sample = take_sample(arms[arm], options, began);
      sample.arm = order[place];
      sample.round = round;
      sample.place = static_cast<int>(place);
      result.values[arm].push_back(sample.value);
      result.samples.push_back(sample);
      ++done;
      if (options.progress) options.progress(std::min(done, total), total);
    }
    result.order.push_back(order);
    stop = stop_now(result, arms, options, static_cast<double>(now_ns() - began) * 1e-9);
  }
  result.stop = *stop;
  flag_samples(result.samples);
  return result;
}

WarmUp warm_up(const std::function<double()>& run, const WarmUpOptions& options) {
  constexpr size_t kWindow = 3;
  WarmUp result;
  const int64_t start = now_ns();
  while (static_cast<int>(result.values.size()) < options.max_runs) {
    result.values.push_back(run());
    const bool out_of_time = static_cast<double>(now_ns() - start) * 1e-9 > options.max_seconds;
    if (result.values.size() >= kWindow) {
      const std::span<const double> last = std::span(result.values).last(kWindow);
      const double centre = median(last);
      result.stable = true;
      for (double v : last) result.stable &= std::abs(v - centre) <= options.tolerance * centre;
      if (result.stable) break;
    }
    if (out_of_time) break;
  }
  return result;
}

}  // namespace fathom::measure

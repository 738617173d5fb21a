// SPDX-License-Identifier: Apache-2.0
// Randomised interleaved rounds: every round runs each arm once in a fresh random order, so that
// drift and noise of the machine hit all arms alike. One arm may have a twin that does the same
// (A/A): what the two seem to differ by is what this machine cannot tell apart. Every sample is
// kept, with its place in the order and what the machine was doing; odd ones are flagged, never
// dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fathom::measure {

struct Arm {
  std::string name;
  std::function<double()> run;  // measures once and returns the value, in the arm's own unit
  bool control = false;         // beside what is measured (a read ceiling): stops nothing
};

// What the machine says at one moment; counts only ever grow.
struct SampleState {
  std::optional<double> clock_mhz;        // of the core or the SMs that do the work
  std::optional<uint64_t> throttle_bits;  // of NVML, those of kThrottleBits
  std::optional<int64_t> steal_ns;        // taken by the hypervisor, all CPUs
  std::optional<int64_t> pressure_ns;     // some task waited for a CPU
};

enum SampleFlag : unsigned {
  kFlagOutlier = 1,     // farther than 5 robust sigmas from its arm's median
  kFlagThrottled = 2,   // the device says that it held its clock down
  kFlagClockDrift = 4,  // its clock is more than 2 % off the median of all samples
  kFlagStolen = 8,      // the hypervisor took over 5 % of a CPU's time meanwhile
  kFlagContended = 16,  // tasks waited for a CPU over 10 % of the time meanwhile
};
// Those that speak against a sample; the others explain it.
inline constexpr unsigned kDoubtful = kFlagOutlier | kFlagThrottled | kFlagClockDrift;
std::vector<std::string> flag_names(unsigned flags);
// The names for each sample of one arm, where nothing else is known of it.
std::vector<std::vector<std::string>> outlier_flags(std::span<const double> values);

inline constexpr double kClockDrift = 0.02;
inline constexpr double kMostFlagged = 0.20;  // of an arm's samples, else it is not to be trusted

struct Sample {
  int arm = 0, round = 0;
  int place = 0;  // in the order of its round
  double value = 0;
  int64_t start_ns = 0;  // since the first sample began
  int64_t duration_ns = 0;
  std::optional<double> clock_mhz;  // right after it
  unsigned flags = 0;
};

// Declared before the first round. Stopping on what the data say makes intervals a little too
// narrow: which rule ended the rounds is part of the result.
struct StopRule {
  double half_width = 0.01;  // of every arm's 95 % interval, as a share; controls apart
  double max_seconds = 60;
  int most_rounds = 1000;
};
enum class StopReason { fixed_rounds, interval, time_cap, most_rounds };
const char* stop_reason_name(StopReason reason);

struct RoundsOptions {
  int n_rounds = 5;  // with `until`: at least so many, and no fewer than 6
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;               // looked at between arms
  std::function<void(int done, int total)> progress = {};  // optional
  std::optional<size_t> aa_arm = {};                       // gets a twin, the last arm
  std::optional<StopRule> until = {};
  std::function<SampleState()> state = {};  // asked before and after each sample
};

struct Rounds {
  uint64_t seed = 0;
  std::vector<std::string> arms;
  std::vector<std::vector<int>> order;      // [round][place] -> arm
  std::vector<std::vector<double>> values;  // [arm][round]
  std::vector<Sample> samples;              // in the order in which they ran
  std::optional<size_t> aa_arm, aa_twin;    // arms
  StopReason stop = StopReason::fixed_rounds;
};

// Throws Error{cancelled} when asked to stop.
Rounds run_rounds(const std::vector<Arm>& arms, const RoundsOptions& options);

// Flags that follow from the values and clocks of the samples themselves, added to those there.
void flag_samples(std::vector<Sample>& samples);

// Half of the 95 % interval (Hodges-Lehmann, of the logarithms): the share by which a value may be
// off. Infinite below 6 values, or when one is not positive.
double relative_half_width(const std::vector<double>& values);

// Runs until three values in a row lie within `tolerance` of their median, at least three times and
// at most max_runs. `stable` tells which ended it.
struct WarmUpOptions {
  int max_runs = 10;
  double tolerance = 0.05;
  double max_seconds = 10;
};
struct WarmUp {
  std::vector<double> values;
  bool stable = false;
};
WarmUp warm_up(const std::function<double()>& run, const WarmUpOptions& options = {});

}  // namespace fathom::measure

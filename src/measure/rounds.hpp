// SPDX-License-Identifier: Apache-2.0
// Randomised interleaved rounds: every round runs each arm once in a fresh random order, so that
// drift and noise of the machine hit all arms alike. The seed and the order are part of the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fathom::measure {

struct Arm {
  std::string name;
  std::function<double()> run;  // measures once and returns the value, in the arm's own unit
};

struct RoundsOptions {
  int n_rounds = 5;
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;          // looked at between arms
  std::function<void(int done, int total)> progress;  // optional
};

struct Rounds {
  uint64_t seed = 0;
  std::vector<std::string> arms;
  std::vector<std::vector<int>> order;      // [round][place] -> arm
  std::vector<std::vector<double>> values;  // [arm][round]
};

// Throws Error{cancelled} when asked to stop.
Rounds run_rounds(const std::vector<Arm>& arms, const RoundsOptions& options);

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

// SPDX-License-Identifier: Apache-2.0
// Steps of one program at several depths, timed without a watcher and, at some depths, with one, in
// mirrored rounds: a round runs every arm once in random order and then once more in the reverse
// order (ABBA), so that a drift within it falls on all arms alike, and the two blocks of an arm are
// an A/A pair. A block is a lead-in (a step, and those that run ahead) and then a few timed steps,
// of which the quiet ones count.
// The raw blocks are all that attribution is computed from; as JSON they cross from a process to
// another and into result files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/op_scope.hpp"
#include "device/trace.hpp"
#include "measure/census.hpp"
#include "measure/clock.hpp"
#include "measure/quiet_steps.hpp"

namespace fathom::measure {

// What is measured. A step at a depth is the same work however often it runs.
class StepProgram {
 public:
  virtual ~StepProgram() = default;
  virtual void step(size_t depth) = 0;  // an index
  // Steps that may still run when step() returns: a device's are on their way before it is done
  // with the one before, so that it never waits for the host. step() then returns when the step so
  // many before it is done.
  virtual int n_ahead() const { return 0; }
  virtual void wait() {}  // for all of them
  // The source's scopes hear of every op until they are told to stop; only between blocks.
  virtual void watch(OpScopeSink* scopes) = 0;
  // A figure proportional to the clock of what runs the steps; 0 = it cannot be told. Asked at the
  // end of a block, when its last step is timed and those that run ahead still run.
  virtual double clock_speed() { return 0; }
};

struct UntracedBlock {
  std::vector<int64_t> steps_ns;  // host time of each step
  double clock = 0;               // clock_speed() at its end
  double step_ns() const { return quiet_mean(steps_ns); }
};

struct TracedBlock {
  std::vector<int64_t> steps_ns;
  double clock = 0;
  int64_t steps = 0;                          // that the census summed
  std::vector<int64_t> exclusive_ns, gap_ns;  // sums over these, by place in the plan
  int64_t span_ns = 0;
  int64_t busy_ns = 0;
  double step_ns() const { return quiet_mean(steps_ns); }
  double period_ns() const { return static_cast<double>(span_ns) / static_cast<double>(steps); }
};

// An arm's two blocks of a round, in the order in which they ran.
template <class Block>
using BlockPair = std::array<Block, 2>;

struct DepthSamples {
  std::vector<BlockPair<UntracedBlock>> untraced;  // [round]
  std::vector<BlockPair<TracedBlock>> traced;      // [round]; only of the anchors
  std::vector<Launch> plan;                        // of the traced steps
  TraceStep shown;                                 // the newest of them, for a timeline
};

struct Observation {
  uint64_t seed = 0;
  std::vector<DepthSamples> depths;
  std::vector<std::vector<int>> order;          // [round][place of 2 n] -> arm; see arm_names()
  std::vector<std::vector<int>> order_watched;  // that of the traced rounds, if they came later
  int refused_windows = 0;                      // that proved nothing and were measured again
  std::string stopped;                          // "precision", "time" or "rounds"
  std::string problem;                          // not empty: why the traced windows prove nothing

  size_t n_rounds() const { return order.size(); }
  const DepthSamples& lo() const { return depths.front(); }
  const DepthSamples& hi() const { return depths.back(); }
  bool is_apart() const { return !order_watched.empty(); }
};

struct ObserveOptions {
  size_t n_depths = 2;
  bool untraced = true;
  TraceSource* source = nullptr;  // null = no traced arms
  std::vector<size_t> traced;     // depths with a traced arm; empty = the first and the last
  double block_ns = 40e6;         // a block's timed steps take about so long, one at least
  int min_rounds = 10;
  int max_rounds = 2000;
  double max_seconds = 60;
  uint64_t seed = 1;
  // Looked at every few rounds from min_rounds on: whether the intervals are narrow enough.
  std::function<bool(const Observation&)> precise_enough;
  std::function<void(int round)> between_rounds;  // for what is sampled beside the arms
  Clock clock = now_ns;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(double fraction)> progress;
};

// Throws Error{cancelled}. Traced windows that prove nothing end it with Observation::problem.
Observation observe(StepProgram& program, const ObserveOptions& options);

// "untraced 0", "traced 1": the arms of `order`, by index.
std::vector<std::string> arm_names(const ObserveOptions& options);

// The observation as if it had been of some of its depths only; `order` stays that of all.
Observation of_depths(const Observation& observation, const std::vector<size_t>& depths);

// Gives `to` the watched steps of a later observation of the anchors. REQUIRES: two depths in
// `watched`.
void add_watched(Observation& to, Observation watched);

}  // namespace fathom::measure

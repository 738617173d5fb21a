// SPDX-License-Identifier: Apache-2.0
// The blocks, the mirrored order, and when to stop.
#include "measure/observation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "measure/clock.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr int kMaxSteps = 1000;         // of a block
constexpr double kResolutions = 100;    // a block is at least so many steps of the clock
constexpr int kRoundsBetweenLooks = 5;  // at the precision
constexpr int kMostRefused = 3;         // windows that prove nothing, of a run

struct BlockArm {
  size_t depth;
  bool traced;
};

bool is_traced(const ObserveOptions& options, size_t depth) {
  if (options.traced.empty()) return depth == 0 || depth + 1 == options.n_depths;
  return std::find(options.traced.begin(), options.traced.end(), depth) != options.traced.end();
}

std::vector<BlockArm> arms_of(const ObserveOptions& options) {
  std::vector<BlockArm> arms;
  for (size_t depth = 0; depth < options.n_depths; ++depth) {
    if (options.untraced) arms.push_back({depth, false});
    if (options.source && is_traced(options, depth)) arms.push_back({depth, true});
  }
  return arms;
}

// Watches for a scope, so that no exception leaves a dead sink behind.
class Watch {
 public:
  Watch(StepProgram& program, OpScopeSink& scopes) : program_(program) { program_.watch(&scopes); }
  ~Watch() { program_.watch(nullptr); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  StepProgram& program_;
};

class Observer {
 public:
  Observer(StepProgram& program, const ObserveOptions& options)
      : program_(program), options_(options), arms_(arms_of(options)), random_(options.seed) {
    out_.seed = options.seed;
    out_.depths.resize(options.n_depths);
  }

  Observation run() {
    warm_up_all();
    const int64_t start = options_.clock();
    while (true) {
      if (options_.cancel && options_.cancel->load()) fail(ErrorCode::cancelled, "interrupted");
      const double seconds = static_cast<double>(options_.clock() - start) * 1e-9;
      const int n = static_cast<int>(out_.n_rounds());
      out_.stopped = why_stop(n, seconds);
      if (!out_.stopped.empty()) break;
      round();
      if (!out_.problem.empty()) break;
      if (options_.between_rounds) options_.between_rounds(n);
      if (options_.progress) {
        options_.progress(std::min(1.0, std::max(seconds / options_.max_seconds,
                                                 n / static_cast<double>(options_.max_rounds))));
      }
    }
    return std::move(out_);
  }

 private:
  std::string why_stop(int n, double seconds) const {
    if (n >= options_.max_rounds) return "rounds";
    if (n < options_.min_rounds) return "";
    if (seconds >= options_.max_seconds) return "time";
    const bool looks = (n - options_.min_rounds) % kRoundsBetweenLooks == 0;
    if (looks && options_.precise_enough && options_.precise_enough(out_)) return "precision";
    return "";
  }

  void warm_up_all() {
    const double least_ns =
        kResolutions * static_cast<double>(std::max<int64_t>(1, clock_quality().resolution_ns));
    for (size_t depth = 0; depth < options_.n_depths; ++depth) {
      const WarmUp warm = warm_up([&] {
        const int64_t start = options_.clock();
        program_.step(depth);
        program_.wait();
        return static_cast<double>(options_.clock() - start);
      });
      const double wanted = std::max(options_.block_ns, least_ns);
      steps_.push_back(
          std::clamp(static_cast<int>(std::lround(wanted / median(warm.values))), 1, kMaxSteps));
    }
  }

  void round() {
    std::vector<int> order(arms_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    order.insert(order.end(), order.rbegin(), order.rend());
    for (const BlockArm& arm : arms_) {
      if (arm.traced) {
        out_.depths[arm.depth].traced.emplace_back();
      } else {
        out_.depths[arm.depth].untraced.emplace_back();
      }
    }
    for (size_t place = 0; place < order.size(); ++place) {
      const BlockArm& arm = arms_[static_cast<size_t>(order[place])];
      const size_t half = place < arms_.size() ? 0 : 1;
      if (arm.traced) {
        out_.depths[arm.depth].traced.back()[half] = traced_block(arm.depth);
        if (!out_.problem.empty()) break;
      } else {
        out_.depths[arm.depth].untraced.back()[half] = untraced_block(arm.depth);
      }
    }
    out_.order.push_back(std::move(order));
  }

  int lead_in() const { return 1 + program_.n_ahead(); }

  // Times of `steps_` steps after those that lead in. Where steps run ahead, step() returns when an
  // earlier one is done: with as many ahead at the end as at the start, that is a step's time too.
  // The clock is read of a device that is busy (an idle one lowers it), and no timed step waits for
  // that.
  std::vector<int64_t> timed_steps(size_t depth, double& clock) {
    std::vector<int64_t> out(static_cast<size_t>(steps_[depth]));
    for (int i = 0; i < lead_in(); ++i) program_.step(depth);
    int64_t before = options_.clock();
    for (int64_t& ns : out) {
      program_.step(depth);
      const int64_t now = options_.clock();
      ns = now - before;
      before = now;
    }
    clock = program_.clock_speed();
    program_.wait();
    return out;
  }

  UntracedBlock untraced_block(size_t depth) {
    UntracedBlock block;
    block.steps_ns = timed_steps(depth, block.clock);
    return block;
  }

  // A window with lost or broken records is measured again; what it saw is thrown away and counted.
  TracedBlock traced_block(size_t depth) {
    TracedBlock block;
    TraceSource& source = *options_.source;
    const Watch watch(program_, source.scopes());
    TraceWindow window;
    Census census;
    while (true) {
      source.start();
      block.steps_ns = timed_steps(depth, block.clock);
      window = source.stop(steps_[depth] + lead_in());
      census = take_census(window);
      if (census.problem.empty() || out_.refused_windows == kMostRefused) break;
      ++out_.refused_windows;
    }
    DepthSamples& samples = out_.depths[depth];
    if (census.problem.empty() && !samples.plan.empty() && census.plan != samples.plan) {
      census.problem = "two windows at one depth ran different launches";
    }
    if (!census.problem.empty()) {
      out_.problem = fmt::format("a traced window at depth {} of {}: {}", depth + 1,
                                 options_.n_depths, census.problem);
      return block;
    }
    if (samples.plan.empty()) samples.plan = census.plan;
    block.steps = census.n_steps;
    block.exclusive_ns = std::move(census.exclusive_ns);
    block.gap_ns = std::move(census.gap_ns);
    block.span_ns = census.span_ns;
    block.busy_ns = census.busy_ns;
    samples.shown = window.steps.back();
    return block;
  }

  StepProgram& program_;
  const ObserveOptions& options_;
  std::vector<BlockArm> arms_;
  Random random_;
  std::vector<int> steps_;  // of a block, by depth
  Observation out_;
};

}  // namespace

std::vector<std::string> arm_names(const ObserveOptions& options) {
  std::vector<std::string> names;
  for (const BlockArm& arm : arms_of(options)) {
    names.push_back(fmt::format("{} {}", arm.traced ? "traced" : "untraced", arm.depth));
  }
  return names;
}

Observation of_depths(const Observation& observation, const std::vector<size_t>& depths) {
  Observation out = observation;
  out.depths.clear();
  for (const size_t depth : depths) out.depths.push_back(observation.depths[depth]);
  return out;
}

void add_watched(Observation& to, Observation watched) {
  FATHOM_CHECK(watched.depths.size() == 2, "the anchors and nothing else are watched");
  for (const bool last : {false, true}) {
    DepthSamples& from = watched.depths[last];
    DepthSamples& depth = last ? to.depths.back() : to.depths.front();
    depth.traced = std::move(from.traced);
    depth.plan = std::move(from.plan);
    depth.shown = std::move(from.shown);
  }
  to.order_watched = std::move(watched.order);
  to.refused_windows = watched.refused_windows;
  to.problem = watched.problem;
}

Observation observe(StepProgram& program, const ObserveOptions& options) {
  FATHOM_CHECK(options.n_depths >= 2, "a difference needs two depths");
  return Observer(program, options).run();
}

}  // namespace fathom::measure

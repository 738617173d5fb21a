// SPDX-License-Identifier: Apache-2.0
// The checks of a window, the walk over its records, and the sums.
#include "measure/census.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.hpp"
#include "measure/quiet_steps.hpp"

namespace fathom::measure {
namespace {

Launch launch_of(const TraceRecord& record) {
  return {.key = {record.layer, record.op, record.ordinal},
          .kernel = record.kernel,
          .grid = record.grid,
          .block = record.block,
          .shared_bytes = record.shared_bytes,
          .registers = record.registers};
}

std::string name_of(const LaunchKey& key) {
  return key.layer < 0 ? fmt::format("{}[{}]", key.op, key.ordinal)
                       : fmt::format("{}[{}] of layer {}", key.op, key.ordinal, key.layer);
}

int64_t count_invalid(const TraceWindow& window) {
  int64_t n = window.n_invalid;
  for (const TraceStep& step : window.steps) {
    n += std::count_if(step.records.begin(), step.records.end(), [](const TraceRecord& record) {
      return record.start_ns <= 0 || record.end_ns < record.start_ns;
    });
  }
  return n;
}

// Each counted step must have the launches of the plan, each once.
std::string plan_problem(const TraceStep& step, size_t index, const std::vector<Launch>& plan,
                         const std::map<LaunchKey, size_t>& places) {
  if (step.records.size() != plan.size()) {
    return fmt::format("step {} has {} launches, the first one {}", index, step.records.size(),
                       plan.size());
  }
  std::vector<bool> seen(plan.size());
  for (const TraceRecord& record : step.records) {
    const Launch launch = launch_of(record);
    const auto place = places.find(launch.key);
    if (place == places.end() || seen[place->second]) {
      return fmt::format("step {} has a launch {} that the first one has not", index,
                         name_of(launch.key));
    }
    seen[place->second] = true;
    if (launch != plan[place->second]) {
      return fmt::format("step {} runs {} with another kernel or grid than the first one", index,
                         name_of(launch.key));
    }
  }
  return "";
}

std::vector<const TraceRecord*> by_start(const TraceStep& step) {
  std::vector<const TraceRecord*> records;
  for (const TraceRecord& record : step.records) records.push_back(&record);
  std::stable_sort(records.begin(), records.end(), [](const TraceRecord* a, const TraceRecord* b) {
    return a->start_ns < b->start_ns;
  });
  return records;
}

std::string window_problem(const TraceWindow& window) {
  if (!window.problem.empty()) return window.problem;
  if (window.n_lost > 0) return fmt::format("{} records were lost", window.n_lost);
  if (const int64_t n = count_invalid(window); n > 0) {
    return fmt::format("{} records are invalid (no times, or an end before the start)", n);
  }
  if (window.steps.size() < 2) return "a window needs two steps at least";
  return "";
}

struct StepSums {
  std::vector<int64_t> exclusive_ns, gap_ns;  // by place in the plan
  int64_t span_ns = 0, busy_ns = 0;
};

// Moves latest_end on to the end of the step.
StepSums walk(const TraceStep& step, const std::map<LaunchKey, size_t>& places,
              int64_t& latest_end) {
  StepSums out;
  out.exclusive_ns.resize(places.size());
  out.gap_ns.resize(places.size());
  const int64_t begin = latest_end;
  int64_t sum = 0;
  for (const TraceRecord* record : by_start(step)) {
    const size_t place = places.at({record->layer, record->op, record->ordinal});
    const int64_t gap = std::max<int64_t>(0, record->start_ns - latest_end);
    const int64_t exclusive =
        std::max<int64_t>(0, record->end_ns - std::max(record->start_ns, latest_end));
    out.gap_ns[place] = gap;
    out.exclusive_ns[place] = exclusive;
    out.busy_ns += record->end_ns - record->start_ns;
    sum += gap + exclusive;
    latest_end = std::max(latest_end, record->end_ns);
  }
  out.span_ns = latest_end - begin;
  FATHOM_CHECK(sum == out.span_ns, "exclusive times and gaps do not add up to the span");
  return out;
}

}  // namespace

Census take_census(const TraceWindow& window) {
  Census census;
  census.problem = window_problem(window);
  if (!census.problem.empty()) return census;

  std::map<LaunchKey, size_t> places;
  for (const TraceRecord* record : by_start(window.steps[1])) {
    const Launch launch = launch_of(*record);
    if (!places.emplace(launch.key, census.plan.size()).second) {
      census.problem = fmt::format("two records are both {}", name_of(launch.key));
      return census;
    }
    census.plan.push_back(launch);
  }
  for (size_t i = 0; i < window.steps.size(); ++i) {
    std::string problem = plan_problem(window.steps[i], i, census.plan, places);
    if (problem.empty()) continue;
    census.problem = std::move(problem);
    return census;
  }

  std::vector<StepSums> steps;
  std::vector<int64_t> spans;
  int64_t latest_end = 0;
  for (const TraceRecord& record : window.steps[0].records) {
    latest_end = std::max(latest_end, record.end_ns);
  }
  for (size_t i = 1; i < window.steps.size(); ++i) {
    steps.push_back(walk(window.steps[i], places, latest_end));
    spans.push_back(steps.back().span_ns);
  }
  census.exclusive_ns.resize(census.plan.size());
  census.gap_ns.resize(census.plan.size());
  for (const size_t kept : quiet_steps(spans)) {
    const StepSums& step = steps[kept];
    for (size_t place = 0; place < census.plan.size(); ++place) {
      census.exclusive_ns[place] += step.exclusive_ns[place];
      census.gap_ns[place] += step.gap_ns[place];
    }
    census.span_ns += step.span_ns;
    census.busy_ns += step.busy_ns;
    ++census.n_steps;
  }
  return census;
}

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// The events of op scopes, and their division into steps.
#include "measure/op_trace.hpp"

#include <map>
#include <utility>

#include "base/error.hpp"

namespace fathom::measure {

OpTrace::OpTrace(size_t capacity, Clock clock) : clock_(std::move(clock)), events_(capacity) {}

void OpTrace::start() {
  n_ = 0;
  n_lost_ = 0;
  open_ = false;
}

void OpTrace::begin(const OpTag& tag, const Cost&) {
  FATHOM_CHECK(!open_, "an op began inside another one");
  open_ = true;
  if (n_ < events_.size()) events_[n_] = {tag, clock_(), 0};
}

void OpTrace::end() {
  const int64_t now = clock_();
  FATHOM_CHECK(open_, "an op ended that never began");
  open_ = false;
  if (n_ < events_.size()) {
    events_[n_++].end_ns = now;
  } else {
    ++n_lost_;
  }
}

TraceWindow OpTrace::stop(int n_steps) {
  TraceWindow window;
  window.n_lost = n_lost_;
  if (n_steps < 1 || n_ == 0 || n_ % static_cast<size_t>(n_steps) != 0) {
    window.problem =
        fmt::format("{} ops are no whole number of ops in each of {} steps", n_, n_steps);
    return window;
  }
  const size_t per_step = n_ / static_cast<size_t>(n_steps);
  for (size_t first = 0; first < n_; first += per_step) {
    TraceStep& step = window.steps.emplace_back();
    std::map<std::pair<int, std::string>, int> ordinals;
    for (size_t i = first; i < first + per_step; ++i) {
      const Event& event = events_[i];
      TraceRecord& record = step.records.emplace_back();
      record.op = record.kernel = event.tag.op;
      record.layer = event.tag.layer;
      record.ordinal = ordinals[{record.layer, record.op}]++;
      record.start_ns = event.start_ns;
      record.end_ns = event.end_ns;
    }
  }
  return window;
}

}  // namespace fathom::measure

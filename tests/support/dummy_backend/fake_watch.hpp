// SPDX-License-Identifier: Apache-2.0
// The three ways to watch the guarded device, so that commands which watch a GPU run where there is
// none: times of the works of a graph, counters that say what the ops declare, and samples made up.
// $FAKE_WATCH is "denied" (no right to counters and samples), "lacks" (a chip without DRAM
// counters) or "loses" (records of a traced window).
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "device/counters.hpp"
#include "device/stalls.hpp"
#include "device/trace.hpp"

namespace fathom::fake {

inline bool watch_is(const std::string& what) {
  const char* asked = std::getenv("FAKE_WATCH");
  return asked && what == asked;
}

inline constexpr const char* kDenied = "the driver gives counters to administrators only (35)";

class Trace : public TraceSource, OpScopeSink {
 public:
  // Of a work that is captured: with a name, if an op is in progress.
  std::function<void()> named(std::function<void()> work) {
    if (!open_) return work;
    const TraceRecord name = *open_;
    ++open_->ordinal;
    return [this, name, work = std::move(work)] {
      TraceRecord record = name;
      record.start_ns = now();
      work();
      record.end_ns = now();
      if (recording_) records_.push_back(std::move(record));
    };
  }

  OpScopeSink& scopes() override { return *this; }
  void start() override {
    records_.clear();
    recording_ = true;
  }
  TraceWindow stop(int n_steps) override {
    recording_ = false;
    TraceWindow window;
    const size_t n = static_cast<size_t>(n_steps), each = records_.size() / n;
    if (each == 0 || records_.size() % n != 0) {
      window.problem = "no graphs of named works were replayed";
      return window;
    }
    for (size_t step = 0; step < n; ++step) {
      const auto begin = records_.begin() + static_cast<std::ptrdiff_t>(step * each);
      window.steps.push_back({{begin, begin + static_cast<std::ptrdiff_t>(each)}});
    }
    if (watch_is("loses")) window.n_lost = 3;
    return window;
  }
  void begin(const OpTag& tag, const Cost&) override {
    open_ = TraceRecord{.op = tag.op,
                        .layer = tag.layer,
                        .ordinal = 0,
                        .kernel = std::string(tag.op) + "_kernel",
                        .start_ns = 0,
                        .end_ns = 0,
                        .grid = {4, 1, 1},
                        .block = {32, 1, 1},
                        .shared_bytes = 0,
                        .registers = 32};
  }
  void end() override { open_.reset(); }

 private:
  static int64_t now() {
    using Ns = std::chrono::nanoseconds;
    return std::chrono::duration_cast<Ns>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::optional<TraceRecord> open_;
  std::vector<TraceRecord> records_;
  bool recording_ = false;
};

class Counters : public CounterSource, OpScopeSink {
 public:
  std::vector<std::string> names() const override { return {}; }
  std::vector<std::string> core() const override { return {}; }
  std::vector<std::string> cache() const override { return {}; }
  std::vector<std::string> stalls() const override { return {}; }
  OpScopeSink& scopes() override { return *this; }
  CounterRun collect(std::span<const std::string> names,
                     const std::function<void()>& step) override {
    CounterRun run;
    if (watch_is("denied")) {
      run.problem = kDenied;
      return run;
    }
    for (const std::string& name : names) {
      const bool lacks = watch_is("lacks") && name.starts_with("dram");
      run.counters.push_back({.name = name,
                              .unit = "",
                              .metric = lacks ? "" : "fake__" + name,
                              .scale = 1,
                              .note = lacks ? "chip fake has no " + name : ""});
    }
    run_ = &run;
    step();
    run_ = nullptr;
    run.n_passes = 1;
    return run;
  }
  void begin(const OpTag& tag, const Cost& cost) override {
    if (!run_) return;
    OpCounters op{.op = tag.op, .layer = tag.layer, .values = {}};
    for (const Counter& counter : run_->counters) {
      op.values.push_back(counter.metric.empty() ? std::nullopt : value_of(counter.name, cost));
    }
    run_->ops.push_back(std::move(op));
  }
  void end() override {}

 private:
  static std::optional<double> value_of(const std::string& name, const Cost& cost) {
    if (name == "dram_read_bytes") return static_cast<double>(cost.memory_bytes());
    if (name == "dram_write_bytes") return 0;
    if (name == "sm_cycles_active_avg") return 900;
    if (name == "sm_cycles_active_max") return 1000;
    return 10;
  }
  CounterRun* run_ = nullptr;  // while a step is counted
};

class Stalls : public StallSource, OpScopeSink {
 public:
  OpScopeSink& scopes() override { return *this; }
  StallProfile sample(const std::string& op, int n_steps,
                      const std::function<void()>& step) override {
    for (int i = 0; i < n_steps; ++i) step();
    StalledPlace at;
    at.place = {.offset = 0x120, .instruction = "FADD", .file = "fake.cu", .line = 12};
    at.samples = 100;
    at.reasons = {{"long_scoreboard", 90}, {"wait", 10}};
    at.producers = {{.offset = 0x40, .instruction = "LDG", .file = "fake.cu", .line = 7}};
    StallProfile profile;
    profile.kernels = {
        {.kernel = op + "_kernel", .samples = 100, .reasons = at.reasons, .places = {at}}};
    profile.n_samples = 100;
    return profile;
  }
  void begin(const OpTag&, const Cost&) override {}
  void end() override {}
};

inline Trace& trace() {
  static Trace kTrace;
  return kTrace;
}
inline TraceSource& trace_source() { return trace(); }
inline CounterSource& counter_source() {
  static Counters kCounters;
  return kCounters;
}
inline StallSource& stall_source() {
  if (watch_is("denied")) fail(ErrorCode::unavailable, "{}", kDenied);
  static Stalls kStalls;
  return kStalls;
}

}  // namespace fathom::fake

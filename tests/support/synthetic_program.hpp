// SPDX-License-Identifier: Apache-2.0
// A program of ops whose time, bytes and dependence on depth are set by the test, on a clock of its
// own, so that the truth is known exactly: what attribution must find, or refuse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/observation.hpp"
#include "measure/op_trace.hpp"
#include "measure/statistics.hpp"

namespace fathom::test {

struct SyntheticOp {
  const char* name;
  int layer;
  std::vector<int64_t> ns;     // [depth]; 0 = it does not run
  int64_t idle_before_ns = 0;  // outside of any op
};

class SyntheticProgram : public measure::StepProgram {
 public:
  std::vector<SyntheticOp> ops;
  // Time outside of any op at the end of a step.
  std::function<int64_t(size_t depth, bool watched)> sleep = [](size_t, bool) { return 0; };
  std::function<double(size_t depth)> speed = [](size_t) { return 1000.0; };
  int64_t watching_ns = 40;  // that a scope costs
  double noise = 0;          // share of an op's time, uniform to both sides
  double burst_share = 0;    // of the ops: an interruption of 20 times their length

  int64_t now() const { return now_; }
  measure::Clock clock() {
    return [this] { return now_; };
  }

  void step(size_t depth) override {
    depth_ = depth;
    for (const SyntheticOp& op : ops) {
      if (op.ns[depth] == 0) continue;
      now_ += op.idle_before_ns;
      if (sink_) now_ += watching_ns / 2;
      if (sink_) sink_->begin({op.name, op.layer}, Cost{});
      now_ += noisy(op.ns[depth]);
      if (sink_) sink_->end();
      if (sink_) now_ += watching_ns - watching_ns / 2;
    }
    now_ += sleep(depth, sink_ != nullptr);
  }
  void watch(OpScopeSink* scopes) override { sink_ = scopes; }
  double clock_speed() override { return speed(depth_); }

 private:
  double unit() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
  int64_t noisy(int64_t ns) {
    const double base = static_cast<double>(ns);
    double out = base * (1 + noise * (2 * unit() - 1));
    if (unit() < burst_share) out += 20 * base;
    return static_cast<int64_t>(out);
  }

  OpScopeSink* sink_ = nullptr;
  int64_t now_ = 1'000'000;
  size_t depth_ = 0;
  measure::Random random_{7};
};

}  // namespace fathom::test

// SPDX-License-Identifier: Apache-2.0
// A TraceSource for backends whose ops run one after the other on the host: each op scope becomes
// one record. Also what each op of a step declares to cost. No allocation while steps run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/op_scope.hpp"
#include "device/trace.hpp"
#include "measure/clock.hpp"

namespace fathom::measure {

class OpTrace : public TraceSource, private OpScopeSink {
 public:
  // More ops than `capacity` between start() and stop() are counted as lost.
  explicit OpTrace(size_t capacity, Clock clock = now_ns);

  OpScopeSink& scopes() override { return *this; }
  void start() override;
  TraceWindow stop(int n_steps) override;

 private:
  struct Event {
    OpTag tag;
    int64_t start_ns, end_ns;
  };
  void begin(const OpTag& tag, const Cost& cost) override;
  void end() override;

  Clock clock_;
  std::vector<Event> events_;
  size_t n_ = 0;
  int64_t n_lost_ = 0;
  bool open_ = false;
};

// What the ops of a step declare, in the order in which they ran.
class CostRecorder : public OpScopeSink {
 public:
  struct Entry {
    std::string op;
    int layer;
    Cost cost;
  };
  void begin(const OpTag& tag, const Cost& cost) override {
    entries_.push_back({tag.op, tag.layer, cost});
  }
  void end() override {}
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace fathom::measure

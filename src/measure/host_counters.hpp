// SPDX-License-Identifier: Apache-2.0
// Hardware counters of the host, op by op: what all threads of the process count in user code
// between the begin and the end of an op. Steps that are counted are never timed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/op_scope.hpp"
#include "device/counters.hpp"

namespace fathom::measure {

// Of perf_event_open(2).
struct PerfEvent {
  uint32_t type;
  uint64_t config;
};

// The system's calls, so that another can stand in.
class PerfCalls {
 public:
  virtual ~PerfCalls() = default;
  virtual std::vector<int> threads() = 0;  // of this process
  // Counts the event in that thread's user code. The first of a group has `group` -1, the others
  // its descriptor. A descriptor, or less than 0: a negated errno.
  virtual int open(const PerfEvent& event, int thread, int group) = 0;
  // Into [number of counters, ns enabled, ns running, each counter].
  virtual bool read(int group, std::span<uint64_t> into) = 0;
  virtual void close(int descriptor) = 0;
};
PerfCalls& linux_perf_calls();

class HostCounters : public OpScopeSink {
 public:
  // Of the threads that there are now. `calls` must outlive it.
  explicit HostCounters(PerfCalls& calls);
  ~HostCounters() override;
  HostCounters(const HostCounters&) = delete;
  HostCounters& operator=(const HostCounters&) = delete;

  bool usable() const { return why_.empty(); }
  // Why nothing can be counted; as Machine::counters says it.
  const std::string& why() const { return why_; }

  void begin(const OpTag& tag, const Cost& cost) override;
  void end() override;

  // What each op counted in a step, the mean of the n_steps since the last call; layers together,
  // as layer -1. Where the PMU had not room for all at once, scaled to all of the time.
  CounterRun take(int n_steps);

 private:
  // [thread][enabled, running, each counter that there is], sums over the calls.
  struct Op {
    std::string name;
    std::vector<uint64_t> sums;
  };
  bool open_thread(int thread);
  bool choose(int thread);
  void read_all(std::vector<uint64_t>& into);
  size_t words() const { return events_.size() + 3; }  // of a reading
  std::optional<double> value_of(const Op& op, size_t event) const;
  void close_all();

  PerfCalls& calls_;
  std::string why_;
  std::vector<Counter> counters_;  // all, as asked for
  std::vector<int> event_of_;      // of each: its place in events_, or -1
  std::vector<PerfEvent> events_;  // those that there are
  std::vector<int> groups_, descriptors_;
  std::vector<uint64_t> before_, after_;  // readings of all groups
  std::vector<Op> ops_;
  Op* open_ = nullptr;
  bool lost_ = false;  // a reading failed
};

}  // namespace fathom::measure

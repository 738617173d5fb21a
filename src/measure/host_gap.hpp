// SPDX-License-Identifier: Apache-2.0
// The share of a step in which a device waits for the host, without a tracer: steps of which each
// begins when the host has seen the end of the one before, against the same steps submitted ahead,
// so that the device never waits.
//   share = 1 - ahead / waited
// Only where the host submits faster than the device computes: else it waits in both.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "measure/clock.hpp"

namespace fathom::measure {

struct StepsOfDevice {
  std::function<void()> step;    // returns when it is done
  std::function<void()> submit;  // returns when the step `n_ahead` before is done
  std::function<void()> wait;    // for all that was submitted
  int n_ahead;
  Clock clock = now_ns;
};

// Nanoseconds of each step, the two kinds in turn.
struct HostGapTimes {
  std::vector<double> waited_ns, ahead_ns;
  std::vector<double> submit_ns;  // of those behind which the device had room
};
HostGapTimes time_host_gap(const StepsOfDevice& program);

struct HostGap {
  std::optional<double> share;
  std::string why;  // there is none
};
// REQUIRES: times of each kind, all of them positive.
HostGap host_gap(const HostGapTimes& times);

}  // namespace fathom::measure

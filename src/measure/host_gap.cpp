// SPDX-License-Identifier: Apache-2.0
// Blocks of both kinds in turn, and their medians.
#include "measure/host_gap.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr int kBlocks = 5;  // of each kind
constexpr int kSteps = 8;   // timed, in a block
constexpr double kMostSubmit = 0.9;

}  // namespace

HostGapTimes time_host_gap(const StepsOfDevice& program) {
  HostGapTimes out;
  int64_t before = 0;
  const auto timed = [&](const std::function<void()>& what) {
    what();
    const int64_t now = program.clock();
    const double ns = static_cast<double>(std::max<int64_t>(1, now - before));
    before = now;
    return ns;
  };
  for (int block = 0; block < kBlocks; ++block) {
    program.step();
    before = program.clock();
    for (int i = 0; i < kSteps; ++i) out.waited_ns.push_back(timed(program.step));
    before = program.clock();
    for (int i = 0; i < program.n_ahead; ++i) out.submit_ns.push_back(timed(program.submit));
    program.submit();  // returns with the device's steps from here on
    before = program.clock();
    for (int i = 0; i < kSteps; ++i) out.ahead_ns.push_back(timed(program.submit));
    program.wait();
  }
  return out;
}

HostGap host_gap(const HostGapTimes& times) {
  const double waited = median(times.waited_ns), ahead = median(times.ahead_ns);
  const double submit = median(times.submit_ns);
  if (submit > kMostSubmit * ahead) {
    return {{},
            fmt::format("the host submits a step in {:.1f} us and gets one done in {:.1f} us: "
                        "whether the device waits cannot be told without tracing it",
                        submit * 1e-3, ahead * 1e-3)};
  }
  return {std::max(0.0, 1 - ahead / waited), ""};
}

}  // namespace fathom::measure

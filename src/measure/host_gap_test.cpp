// SPDX-License-Identifier: Apache-2.0
// Devices of known times: their gap is found, or refused.
#include "measure/host_gap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace fathom::measure {
namespace {

// The host takes a while to submit a step and to hear of its end.
struct Queue {
  int64_t device_ns = 200'000, launch_ns = 20'000, wake_ns = 5'000;
  int n_ahead = 4;
  int64_t now = 1'000'000, device_end = 0, n_steps = 0;
  std::deque<int64_t> ends;

  void submit() {
    ++n_steps;
    now += launch_ns;
    device_end = std::max(device_end, now) + device_ns;
    ends.push_back(device_end);
    if (static_cast<int>(ends.size()) <= n_ahead) return;
    now = std::max(now, ends.front());
    ends.pop_front();
  }
  void wait() {
    now = std::max(now, device_end) + wake_ns;
    ends.clear();
  }
  HostGap gap() {
    const HostGapTimes times = time_host_gap({.step =
                                                  [&] {
                                                    submit();
                                                    wait();
                                                  },
                                              .submit = [&] { submit(); },
                                              .wait = [&] { wait(); },
                                              .n_ahead = n_ahead,
                                              .clock = [&] { return now; }});
    return host_gap(times);
  }
};

TEST(HostGap, IsWhatTheDeviceWaitsFor) {
  Queue queue;
  const HostGap gap = queue.gap();
  ASSERT_TRUE(gap.share.has_value()) << gap.why;
  EXPECT_DOUBLE_EQ(*gap.share, 25'000.0 / 225'000);
  EXPECT_LT(queue.n_steps, 200) << "bench runs them once for each row";
}

TEST(HostGap, AHostThatIsNoWaitHasNone) {
  Queue queue;
  queue.launch_ns = queue.wake_ns = 0;
  EXPECT_EQ(queue.gap().share, 0);
}

TEST(HostGap, AHostAsSlowAsTheDeviceProvesNothing) {
  Queue slow;
  slow.launch_ns = 250'000;
  EXPECT_THAT(slow.gap().why, testing::HasSubstr("submits a step in 250.0 us"));
  EXPECT_FALSE(slow.gap().share.has_value());
  Queue synchronous;  // a device whose calls return when the work is done
  synchronous.launch_ns = synchronous.device_ns;
  synchronous.device_ns = 0;
  EXPECT_FALSE(synchronous.gap().share.has_value());
}

TEST(HostGap, ALongPauseOfOneStepDoesNotDecide) {
  Queue queue;
  HostGapTimes times = time_host_gap({.step =
                                          [&] {
                                            queue.submit();
                                            queue.wait();
                                          },
                                      .submit = [&] { queue.submit(); },
                                      .wait = [&] { queue.wait(); },
                                      .n_ahead = queue.n_ahead,
                                      .clock = [&] { return queue.now; }});
  times.waited_ns.front() *= 100;
  times.ahead_ns.back() *= 100;
  EXPECT_DOUBLE_EQ(*host_gap(times).share, 25'000.0 / 225'000);
}

}  // namespace
}  // namespace fathom::measure

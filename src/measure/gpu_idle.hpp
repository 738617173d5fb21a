// SPDX-License-Identifier: Apache-2.0
// Does this process have the GPU to itself? Judged of what the driver lists before a context of
// ours exists, and then of a canary: a short kernel, run again and again, whose times spread when
// somebody else computes. Process lists of containers leave others out, so each of these can refuse
// alone, and whatever is unknown proves nothing.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device_api.hpp"
#include "measure/nvml.hpp"

namespace fathom::measure {

inline constexpr int64_t kIdleMemoryBytes = int64_t{1} << 30;  // what a driver keeps for itself
inline constexpr int kIdleUtilisationPct = 5;
inline constexpr size_t kIdleReadings = 3;  // in a row, half a second apart
inline constexpr size_t kMostReadings = 9;  // a process that has just ended takes a while to go
inline constexpr size_t kCanaryRuns = 200;
inline constexpr double kCanarySpread = 0.03;  // interquartile range over median
inline constexpr double kCanaryPeak = 1.5;     // slowest over median

struct IdleVerdict {
  bool idle = false;
  std::string why;              // one sentence, also when idle
  std::optional<double> value;  // what was set against `limit`
  std::optional<double> limit;
};

// Of readings of one GPU over at least a second, while nothing of ours runs on it. `own_pid` is
// left out of the list.
IdleVerdict judge_readings(std::span<const GpuState> readings, int64_t own_pid);
// Reads until kIdleReadings in a row are idle, or kMostReadings are taken; `wait` passes the time
// between two. The last kIdleReadings.
std::vector<GpuState> read_until_idle(const std::function<GpuState()>& read,
                                      const std::function<void()>& wait, int64_t own_pid);
// Of the times of one kernel, in the order in which they ran.
IdleVerdict judge_canary(std::span<const double> times_us);

// Which of the driver's GPUs is CUDA's first, by the text of CUDA_VISIBLE_DEVICES (null = unset):
// numbers in the driver's order, or beginnings of UUIDs. Nothing when it cannot be told.
std::optional<size_t> first_visible_gpu(std::span<const GpuState> gpus, const char* visible);

// kCanaryRuns times of a read stream of about 50 us each, all submitted behind work that keeps the
// device busy until they are queued, so that no pause of the host shows in them. About 100 ms.
// REQUIRES: the device has a read stream.
std::vector<double> canary_times_us(const DeviceApi& device);

}  // namespace fathom::measure

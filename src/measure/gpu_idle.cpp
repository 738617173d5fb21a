// SPDX-License-Identifier: Apache-2.0
// The two judgements, and the canary between events of one stream.
#include "measure/gpu_idle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.hpp"
#include "device/owned.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

constexpr double kCanaryUs = 50;       // a hundred steps of an event's clock
constexpr double kWarmUpUs = 250'000;  // clocks rise when work comes
constexpr double kQueueUs = 20'000;    // longer than submitting the canaries takes
constexpr int64_t kLargestCanary = int64_t{512} << 20;

IdleVerdict busy(std::string why, std::optional<double> value = {},
                 std::optional<double> limit = {}) {
  return {.idle = false, .why = std::move(why), .value = value, .limit = limit};
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

std::string others_text(const std::vector<GpuProcess>& others) {
  std::string text = fmt::format("{} other process{} on it: pid", others.size(),
                                 others.size() == 1 ? " runs" : "es run");
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(others.size(), kShown); ++i) {
    text += fmt::format("{} {}", i ? "," : "", others[i].pid);
    if (others[i].used_bytes) text += fmt::format(" ({:.0f} MB)", megabytes(*others[i].used_bytes));
  }
  return text + (others.size() > kShown ? ", ..." : "");
}

IdleVerdict judge_reading(const GpuState& gpu, int64_t own_pid) {
  if (gpu.mig.value_or(false)) {
    return busy("cannot prove it idle: the GPU is cut into MIG instances that share its memory");
  }
  if (gpu.vgpu.value_or(false)) {
    return busy("cannot prove it idle: a vGPU is shared with other machines");
  }
  if (!gpu.processes) return busy("cannot prove it idle: the driver does not list its processes");
  std::vector<GpuProcess> others;
  for (const GpuProcess& process : *gpu.processes) {
    if (process.pid != own_pid) others.push_back(process);
  }
  if (!others.empty()) return busy(others_text(others), static_cast<double>(others.size()), 0);
  if (gpu.used_bytes > kIdleMemoryBytes) {
    return busy(fmt::format("{:.0f} MB of its memory are taken, though no process is listed",
                            megabytes(gpu.used_bytes)),
                megabytes(gpu.used_bytes), megabytes(kIdleMemoryBytes));
  }
  if (!gpu.utilisation_pct) {
    return busy("cannot prove it idle: the driver does not say how busy it is");
  }
  if (*gpu.utilisation_pct > kIdleUtilisationPct) {
    return busy(fmt::format("it is {} % busy", *gpu.utilisation_pct), *gpu.utilisation_pct,
                kIdleUtilisationPct);
  }
  if (gpu.ecc_errors.value_or(0) > 0) {
    return busy(
        fmt::format("its memory had {} errors that could not be corrected", *gpu.ecc_errors),
        static_cast<double>(*gpu.ecc_errors), 0);
  }
  const std::string held_down = throttle_text(gpu.throttle_bits.value_or(0));
  if (!held_down.empty()) return busy("its clocks are held down: " + held_down);
  return {.idle = true, .why = "", .value = {}, .limit = {}};
}

// A device, a stream and a buffer of zeros that kernels read.
class Canary {
 public:
  explicit Canary(const DeviceApi& device)
      : device_(device), stream_(make_stream(device)), sum_(make_buffer(device, sizeof(uint64_t))) {
    FATHOM_CHECK(device.read_stream != nullptr, "this device has no read stream");
    const int64_t most = std::min(kLargestCanary, device.info().free_bytes / 16);
    buffer_ = make_buffer(device, std::max<int64_t>(most / 16 * 16, 16));
    const std::vector<std::byte> zeros(size_t{1} << 20);
    for (int64_t at = 0; at < buffer_.get().bytes; at += static_cast<int64_t>(zeros.size())) {
      device_.copy_to_device(buffer_.get().data + at, zeros.data(),
                             std::min(static_cast<int64_t>(zeros.size()), buffer_.get().bytes - at),
                             stream_.get());
    }
  }

  void run(int64_t bytes) {
    device_.read_stream(buffer_.get().data, bytes, reinterpret_cast<uint64_t*>(sum_.get().data),
                        stream_.get());
  }
  void run_for(int64_t bytes, double one_us, double us) {
    for (double done = 0; done < us; done += one_us) run(bytes);
  }

  // Of n runs, one after the other, behind work of `queue_us`.
  std::vector<double> times_us(int64_t bytes, size_t n, double one_us, double queue_us) {
    std::vector<Event> events;
    for (size_t i = 0; i <= n; ++i) events.push_back(make_event(device_));
    run_for(bytes, one_us, queue_us);
    device_.event_record(events[0].get(), stream_.get());
    for (size_t i = 0; i < n; ++i) {
      run(bytes);
      device_.event_record(events[i + 1].get(), stream_.get());
    }
    device_.stream_synchronize(stream_.get());
    std::vector<double> times;
    for (size_t i = 0; i < n; ++i) {
      times.push_back(device_.event_elapsed_us(events[i].get(), events[i + 1].get()));
    }
    return times;
  }
  int64_t buffer_bytes() const { return buffer_.get().bytes; }

 private:
  const DeviceApi& device_;
  Stream stream_;
  Buffer buffer_, sum_;
};

}  // namespace

IdleVerdict judge_readings(std::span<const GpuState> readings, int64_t own_pid) {
  if (readings.empty())
    return busy("cannot prove it idle: the driver's library says nothing of it");
  for (const GpuState& reading : readings) {
    const IdleVerdict verdict = judge_reading(reading, own_pid);
    if (!verdict.idle) return verdict;
  }
  return {.idle = true,
          .why = "no other process, its memory free, nothing runs",
          .value = {},
          .limit = {}};
}

std::vector<GpuState> read_until_idle(const std::function<GpuState()>& read,
                                      const std::function<void()>& wait, int64_t own_pid) {
  std::vector<GpuState> readings;
  for (size_t taken = 1;; ++taken) {
    readings.push_back(read());
    if (readings.size() > kIdleReadings) readings.erase(readings.begin());
    const bool enough = readings.size() == kIdleReadings;
    if (enough && (taken >= kMostReadings || judge_readings(readings, own_pid).idle)) {
      return readings;
    }
    wait();
  }
}

IdleVerdict judge_canary(std::span<const double> times_us) {
  if (times_us.size() < kCanaryRuns) {
    return busy(fmt::format("cannot prove it idle: the canary ran {} of {} times", times_us.size(),
                            kCanaryRuns));
  }
  const double centre = median(times_us);
  if (!(centre > 0)) return busy("cannot prove it idle: the canary's times are 0");
  const double spread = (quantile(times_us, 0.75) - quantile(times_us, 0.25)) / centre;
  const double peak = quantile(times_us, 1) / centre;
  if (spread > kCanarySpread) {
    return busy(fmt::format("somebody shares it: a kernel of {:.0f} us varies by {:.1f} %, an idle "
                            "GPU by at most {:.0f} %",
                            centre, 100 * spread, 100 * kCanarySpread),
                spread, kCanarySpread);
  }
  if (peak > kCanaryPeak) {
    return busy(
        fmt::format("somebody shares it: of {} runs of a kernel of {:.0f} us one took {:.1f} "
                    "times as long",
                    times_us.size(), centre, peak),
        peak, kCanaryPeak);
  }
  return {.idle = true,
          .why = fmt::format("{} runs of a kernel of {:.0f} us vary by {:.1f} %", times_us.size(),
                             centre, 100 * spread),
          .value = spread,
          .limit = kCanarySpread};
}

std::optional<size_t> first_visible_gpu(std::span<const GpuState> gpus, const char* visible) {
  if (!visible) return gpus.empty() ? std::optional<size_t>{} : 0;
  const std::string_view list(visible);
  const std::string_view first = list.substr(0, list.find(','));
  if (first.empty()) return {};
  size_t index = 0;
  const auto [end, problem] = std::from_chars(first.data(), first.data() + first.size(), index);
  const bool is_number = problem == std::errc{} && end == first.data() + first.size();
  if (is_number) return index < gpus.size() ? std::optional<size_t>(index) : std::nullopt;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid.starts_with(first)) return i;
  }
  return {};
}

std::vector<double> canary_times_us(const DeviceApi& device) {
  Canary canary(device);
  int64_t bytes = std::min<int64_t>(canary.buffer_bytes(), int64_t{1} << 20);
  double one_us = median(canary.times_us(bytes, 5, kCanaryUs, kCanaryUs));
  while (one_us < kCanaryUs && 2 * bytes <= canary.buffer_bytes()) {
    bytes *= 2;
    one_us = median(canary.times_us(bytes, 5, kCanaryUs, kCanaryUs));
  }
  one_us = std::max(one_us, 1.0);
  return canary.times_us(bytes, kCanaryRuns, one_us, kWarmUpUs + kQueueUs);
}

}  // namespace fathom::measure

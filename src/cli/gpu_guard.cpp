// SPDX-License-Identifier: Apache-2.0
// Readings half a second apart, the canary, and what follows from them.
#include "cli/gpu_guard.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "cli/read_ceiling.hpp"
#include "measure/gpu_idle.hpp"
#include "measure/machine_state.hpp"
#include "report/bench_summary.hpp"

namespace fathom::cli {
namespace {

constexpr auto kBetweenReadings = std::chrono::milliseconds(500);

std::vector<measure::GpuState> readings_of(const measure::Nvml& nvml, std::optional<size_t> gpu) {
  if (!gpu) return {};
  return measure::read_until_idle([&] { return nvml.read().at(*gpu); },
                                  [] { std::this_thread::sleep_for(kBetweenReadings); }, getpid());
}

}  // namespace

GpuGuard::GpuGuard(const CommonFlags& common, bool allow_busy)
    : common_(common), allow_busy_(allow_busy), on_gpu_(common.backend == "cuda") {
  if (!on_gpu_) return;
  gpu_ = measure::first_visible_gpu(nvml_.read(), std::getenv("CUDA_VISIBLE_DEVICES"));
  measure::IdleVerdict verdict = measure::judge_readings(readings_of(nvml_, gpu_), getpid());
  if (!nvml_.problem().empty()) verdict.why = "cannot prove it idle: " + nvml_.problem();
  gates_.push_back({.id = "gpu_idle",
                    .pass = verdict.idle,
                    .value = verdict.value,
                    .limit = verdict.limit,
                    .why = verdict.why});
  judge(verdict.idle, verdict.why);
}

void GpuGuard::run_canary() {
  if (!on_gpu_) return;
  const DeviceApi* device = device_of(common_);
  if (!device || !device->read_stream) return;
  canary_us_ = measure::canary_times_us(*device);
  const measure::IdleVerdict verdict = measure::judge_canary(canary_us_);
  judge(verdict.idle, verdict.why);
}

std::vector<report::Gate> GpuGuard::all_gates() const {
  std::vector<report::Gate> all = gates_;
  if (!canary_us_.empty()) all.push_back(report::canary_gate(canary_us_));
  return all;
}

Json GpuGuard::state() const { return report::state_json(measure::read_machine_state(nvml_)); }

void GpuGuard::judge(bool idle, const std::string& why) {
  if (idle) return;
  if (!allow_busy_) {
    fail(ErrorCode::unavailable,
         "the GPU is not idle, so nothing is measured: {} (--allow-busy measures all the same and "
         "marks the result)",
         why);
  }
  watermark_ += (watermark_.empty() ? "measured on a GPU that is not idle: " : "; ") + why;
}

}  // namespace fathom::cli

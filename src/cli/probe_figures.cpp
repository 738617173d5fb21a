// SPDX-License-Identifier: Apache-2.0
// Ceilings of the host or the device, medians and paired ratios.
#include "cli/probe_figures.hpp"

#include <algorithm>
#include <cmath>

namespace fathom::cli {
namespace {

using measure::ProbeMemory;
using measure::ProbeTimes;

constexpr int64_t kHostBudget = int64_t{1} << 30, kDeviceBudget = int64_t{6} << 30;
constexpr int64_t kUnknownCacheBytes = int64_t{1} << 20;  // of a device that does not say

}  // namespace

int64_t probe_cache_bytes(const Backend& backend, const measure::Machine& machine) {
  const int64_t bytes =
      backend.device->shares_host_memory ? machine.llc_bytes : backend.device->info().l2_bytes;
  return bytes > 0 ? bytes : kUnknownCacheBytes;
}

int64_t probe_budget_bytes(const Backend& backend) {
  if (backend.device->shares_host_memory) return kHostBudget;
  return std::min(kDeviceBudget, backend.device->info().free_bytes / 4);
}

ProbeCeilingSamplers::ProbeCeilingSamplers(const Backend& backend, int threads,
                                           int64_t cache_bytes) {
  if (backend.device->shares_host_memory) {
    host_ = std::make_unique<measure::ReadBandwidth>(
        measure::ReadBandwidthOptions{.threads = threads, .buffer_bytes = 0});
    host_cached_ = std::make_unique<measure::ReadBandwidth>(
        measure::ReadBandwidthOptions{.threads = threads, .buffer_bytes = cache_bytes / 4});
    return;
  }
  if (backend.device->read_stream)
    device_ = std::make_unique<measure::DeviceBandwidth>(*backend.device);
  if (backend.device->read_cached)
    device_cached_ = std::make_unique<measure::CachedBandwidth>(*backend.device);
}

measure::ProbeCeilings ProbeCeilingSamplers::functions() {
  measure::ProbeCeilings out;
  if (host_) {
    out.memory = [this] { return host_->sample_gbps(0.05); };
    out.cached = [this] { return host_cached_->sample_gbps(0.005); };
  }
  if (device_) out.memory = [this] { return device_->sample_gbps(0.02); };
  if (device_cached_) out.cached = [this] { return device_cached_->sample_gbps(); };
  return out;
}

std::optional<ProbeFigures> figures_of(const ProbeTimes& times, int variant, ProbeMemory memory,
                                       uint64_t seed) {
  const std::span<const double> us = times.us(variant, memory);
  if (us.empty()) return {};
  const auto bytes = static_cast<double>(times.cost.memory_bytes() + times.cost.act_read_bytes +
                                         times.cost.act_written_bytes);
  ProbeFigures f;
  f.us = measure::median(us);
  f.us_ci = measure::bootstrap_median(us, seed);
  f.gbps = bytes / f.us * 1e-3;
  const std::vector<double>& peaks =
      memory == ProbeMemory::cold ? times.memory_gbps : times.cached_gbps;
  if (peaks.empty()) return f;
  std::vector<double> shares;
  for (size_t i = 0; i < us.size(); ++i) shares.push_back(bytes / us[i] * 1e-3 / peaks[i]);
  f.peak_gbps = measure::median(peaks);
  f.share = measure::median(shares);
  return f;
}

std::optional<ProbeRatio> ratio_of(std::span<const double> us, std::span<const double> base) {
  std::vector<double> logs;
  for (size_t i = 0; i < us.size() && i < base.size(); ++i) {
    if (us[i] > 0 && base[i] > 0) logs.push_back(std::log(us[i] / base[i]));
  }
  if (logs.empty()) return {};
  const measure::Interval ci = measure::hodges_lehmann_interval(logs);
  return ProbeRatio{std::exp(measure::hodges_lehmann(logs)), {std::exp(ci.lo), std::exp(ci.hi)}};
}

}  // namespace fathom::cli

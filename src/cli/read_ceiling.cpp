// SPDX-License-Identifier: Apache-2.0
// Which of the two read streams is taken, and for how long.
#include "cli/read_ceiling.hpp"

#include <fmt/format.h>

#include "cli/cache_dir.hpp"
#include "device/backend.hpp"
#include "engine/bind_model.hpp"

namespace fathom::cli {
namespace {

constexpr double kHostSeconds = 0.2;
constexpr double kDeviceSeconds = 0.05;

}  // namespace

const DeviceApi* device_of(const CommonFlags& common) {
  const DeviceApi* device = engine::select_backend(common.backend, common.backend_dir).device;
  return device->shares_host_memory ? nullptr : device;
}

ReadCeiling::ReadCeiling(const ModelInfo& info, const CommonFlags& common) {
  if (info.in_host_memory) {
    host_ = std::make_unique<measure::ReadBandwidth>(
        measure::ReadBandwidthOptions{.threads = info.threads, .buffer_bytes = 0});
  } else if (const DeviceApi* device = device_of(common); device->read_stream) {
    device_ = std::make_unique<measure::DeviceBandwidth>(*device);
  }
}

double ReadCeiling::sample_gbps() {
  return host_ ? host_->sample_gbps(kHostSeconds) : device_->sample_gbps(kDeviceSeconds);
}

std::string device_key(const std::string& device, const measure::Machine& machine) {
  return machine.gpu_driver.empty() ? device
                                    : fmt::format("{}, driver {}", device, machine.gpu_driver);
}

int64_t cache_bytes_of(const ModelInfo& info, const measure::Machine& machine,
                       const CommonFlags& common) {
  return info.in_host_memory ? machine.llc_bytes : device_of(common)->info().l2_bytes;
}

KeptCeiling kept_ceiling(const ModelInfo& info, const measure::Machine& machine,
                         const CommonFlags& common) {
  KeptCeiling kept;
  kept.cache_bytes = cache_bytes_of(info, machine, common);
  kept.command = info.in_host_memory ? "fathom doctor"
                                     : fmt::format("fathom doctor --backend {}", info.backend);
  const std::optional<MeasuredPeak> peak = info.in_host_memory
                                               ? load_peak(machine.key(), info.threads)
                                               : load_peak(device_key(info.device, machine), 0);
  if (peak) kept.gbps = peak->median_gbps;
  return kept;
}

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// The read ceiling of the memory that a model lies in: the host's, or that of the backend's device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "fathom/fathom.hpp"
#include "measure/device_bandwidth.hpp"
#include "measure/machine.hpp"
#include "measure/read_bandwidth.hpp"

namespace fathom::cli {

class ReadCeiling {
 public:
  // Measures nothing yet, but has the buffer. Empty where the device has no read stream. Throws
  // Error{out_of_memory}.
  ReadCeiling(const ModelInfo& info, const CommonFlags& common);

  explicit operator bool() const { return host_ || device_; }
  double sample_gbps();

 private:
  std::unique_ptr<measure::ReadBandwidth> host_;
  std::unique_ptr<measure::DeviceBandwidth> device_;
};

// The device of the backend that was asked for; null when it is the host. Errors as of
// engine::select_backend.
const DeviceApi* device_of(const CommonFlags& common);

// Under which doctor keeps a device's bandwidth: equal for devices on which it can be reused.
std::string device_key(const std::string& device, const measure::Machine& machine);

// Where the weights and the cache of a model lie, what doctor measured there, if it ever ran, and
// the cache in front of it that a rate may come from.
struct KeptCeiling {
  std::optional<double> gbps;  // median
  int64_t cache_bytes = 0;
  std::string command;  // that measures it
};
KeptCeiling kept_ceiling(const ModelInfo& info, const measure::Machine& machine,
                         const CommonFlags& common);

// The last-level cache in front of the memory that the model lies in.
int64_t cache_bytes_of(const ModelInfo& info, const measure::Machine& machine,
                       const CommonFlags& common);

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// The compute peaks of a device as a small kernel reaches them: chains of products in registers on
// every unit at once, checked after every sample.
#pragma once

#include <cstdint>
#include <optional>

#include "device/owned.hpp"

namespace fathom::measure {

const char* arithmetic_name(Arithmetic kind);  // "f32", "f16 tensor", "int8 tensor"

class DeviceFlops {
 public:
  // REQUIRES: the device has an arithmetic stream. Throws Error{unavailable, out_of_memory}.
  explicit DeviceFlops(const DeviceApi& device);

  // GFLOP/s, or 10^9 operations a second (a multiply-add counts as two): the best of a few runs of
  // milliseconds. Error{internal} when the results are wrong.
  double sample_gflops(Arithmetic kind);

 private:
  const DeviceApi& device_;
  Stream stream_;
  Event start_, stop_;
  Buffer right_;
  HostBuffer host_right_;
};

}  // namespace fathom::measure

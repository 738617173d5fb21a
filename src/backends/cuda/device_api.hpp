// SPDX-License-Identifier: Apache-2.0
// The DeviceApi of CUDA: device 0, device memory, non-blocking streams, timing events, graphs.
#pragma once

#include "device/device_api.hpp"

namespace fathom::cuda {

// Every function throws Error{unavailable} when there is no GPU that this build can use.
const DeviceApi& device_api();

}  // namespace fathom::cuda

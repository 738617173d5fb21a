// SPDX-License-Identifier: Apache-2.0
// The kernel nodes of a captured graph with all that they are launched with.
#pragma once

#include <driver_types.h>

#include <functional>
#include <vector>

#include "device/device_api.hpp"

namespace fathom::cuda {

// See DeviceApi.
std::vector<std::vector<KernelLaunch>> watch_captures(const std::function<void()>& fn);
// To be called for each graph that this thread has captured.
void note_captured(cudaGraph_t graph);

}  // namespace fathom::cuda

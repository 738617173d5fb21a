// SPDX-License-Identifier: Apache-2.0
// Whether a kernel that is probed is the one that an engine runs: two nodes of captured graphs, field
// by field. Every word of their parameters is compared but those that are addresses, which differ
// between buffers by nature: there only that both are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device_api.hpp"

namespace fathom::measure {

// Empty, or the first field that differs and how.
std::optional<std::string> verbatim_difference(const KernelLaunch& engine,
                                               const KernelLaunch& probed);
// Of all kernels of a call.
std::optional<std::string> verbatim_difference(const std::vector<KernelLaunch>& engine,
                                               const std::vector<KernelLaunch>& probed);
// Bytes of parameters that were compared, and those that are addresses.
struct ComparedBytes {
  int64_t values = 0, addresses = 0;
};
ComparedBytes compared_bytes(const std::vector<KernelLaunch>& kernels);

}  // namespace fathom::measure

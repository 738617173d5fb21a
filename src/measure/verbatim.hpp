// SPDX-License-Identifier: Apache-2.0
// Whether a kernel that is probed is the one that an engine runs: two nodes of captured graphs,
// field by field. Every word of their parameters is compared but those that are addresses, which
// differ between buffers by nature: there only that both are. Padding between the members of a
// parameter is nobody's: bytes that two captures of one call leave different, over a stack of other
// bytes, are not compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/device_api.hpp"

namespace fathom::measure {

// The kernels of a call that was captured twice.
struct ProbedCall {
  std::vector<KernelLaunch> kernels, again;
};

// Empty, or the first field that differs and how.
std::optional<std::string> verbatim_difference(const std::vector<KernelLaunch>& engine,
                                               const ProbedCall& probed);
// Bytes of parameters that are compared, that are addresses, and that are padding.
struct ComparedBytes {
  int64_t values = 0, addresses = 0, padding = 0;
};
ComparedBytes compared_bytes(const ProbedCall& probed);

}  // namespace fathom::measure

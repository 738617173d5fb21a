// SPDX-License-Identifier: Apache-2.0
// The kernels of a probed call apart, where a call has several: watched by the backend's own source
// in a process of its own, after the times here are taken, since what watching does to a process
// stays.
#pragma once

#include "base/json.hpp"
#include "cli/probe_output.hpp"
#include "device/trace.hpp"
#include "measure/machine.hpp"

namespace fathom::cli {

// Whether there is something to take apart and somebody to watch it.
bool has_kernels_apart(const ProbeCommand& command, const ProbeResults& results);
// Fills SizeResult::calls from the child; says on stderr what is in the way.
void add_kernels_apart(const ProbeCommand& command, ProbeResults& results);
// The child: `source` was made before the device was used.
Json watch_kernels(const ProbeCommand& command, const measure::Machine& machine,
                   TraceSource& source);

Json calls_json(const std::vector<measure::CallTimes>& calls);
std::vector<measure::CallTimes> calls_from_json(const Json& json);

}  // namespace fathom::cli

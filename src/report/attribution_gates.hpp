// SPDX-License-Identifier: Apache-2.0
// Whether the figures of an attribution can be trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/attribution_report.hpp"

namespace fathom::report {

// Those that follow from the report itself. Without costs of the ops, what needs these is not
// judged.
std::vector<Gate> attribution_gates(const AttributionReport& report);

// Of a step at each anchor.
struct LogitsHashes {
  uint64_t unwatched[2] = {0, 0}, watched[2] = {0, 0};
};
Gate plan_gate(const AttributionReport& report, const LogitsHashes& hashes);

// Whether the device gives what it is known to give; none for devices of which that is not known.
std::vector<Gate> device_ceiling_gates(const std::string& device, const measure::Peaks& peaks);

// Of windows that prove nothing: there is no attribution to judge.
Gate broken_window_gate(const std::string& problem);

}  // namespace fathom::report

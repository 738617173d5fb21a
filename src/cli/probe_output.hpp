// SPDX-License-Identifier: Apache-2.0
// What `fathom probe` found, as tables and as a result document.
#pragma once

#include "base/json.hpp"
#include "cli/probe_command.hpp"
#include "report/result.hpp"

namespace fathom::cli {

using ProbeResults = std::vector<SizeResult>;

std::string probe_text(const ProbeCommand& command, const ProbeResults& results,
                       const std::optional<measure::FreedomMap>& map);
Json probe_samples(const ProbeResults& results);
Json probe_summary(const ProbeCommand& command, const ProbeResults& results,
                   const std::optional<measure::FreedomMap>& map);
std::vector<report::Gate> probe_gates(const ProbeCommand& command, const ProbeResults& results);

}  // namespace fathom::cli

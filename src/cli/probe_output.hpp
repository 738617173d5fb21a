// SPDX-License-Identifier: Apache-2.0
// What `fathom probe` found, as a result document; report/probe_report.hpp draws its tables.
#pragma once

#include "base/json.hpp"
#include "cli/probe_command.hpp"

namespace fathom::cli {

using ProbeResults = std::vector<SizeResult>;

Json probe_samples(const ProbeResults& results);
Json probe_summary(const ProbeCommand& command, const ProbeResults& results,
                   const std::optional<measure::FreedomMap>& map);

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// What a result document of `probe` says, from its samples: the times and rates of each variant,
// hot and cold, the ratios of the freedom map, the gates, and the command's tables. Of bits the
// document keeps no samples: their classes are as stored.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "report/result.hpp"

namespace fathom::report {

// The part of `summary` that the samples give, in the places where the document has it. Throws
// Error{bad_file}; so do the others.
Json probe_figures(const Json& document);

// `summary`: with these figures.
std::vector<Gate> probe_gates(const Json& samples, const Json& summary);
std::string probe_text(const Json& summary, bool colour);

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// Knobs for `attribute --confirm`: one thing about the engine changed, and what the decomposition
// predicts of it. A knob is a row of a table; a backend's own knobs are further rows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fathom/fathom.hpp"
#include "report/attribution_report.hpp"

namespace fathom::cli {

struct Knob {
  std::string text;   // "threads 2 -> 1"
  std::string basis;  // what the prediction rests on
  std::function<void(OpenOptions&)> apply;
  // By how much the exposed part of an op's growth may change, least and most: factors.
  std::function<std::array<double, 2>(const measure::Decomposition& before)> exposed_factors;
};

// "threads=1", "cache-type=q8_0". Throws Error{usage} that lists the knobs, or says that the value
// changes nothing.
Knob parse_knob(const std::string& text, const OpenOptions& base, const ModelInfo& info);

// REQUIRES: both reports of the same rounds; `changed` has its own costs and peaks.
report::Confirmation confirmation_of(const Knob& knob, const report::AttributionReport& base,
                                     const report::AttributionReport& changed);

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// A report of `attribute` out of its result document: times, intervals, the closure, rows, line and
// gates from the raw blocks, the growth that confirmations measured too; what the ops declare, the
// peaks of cache and arithmetic, the diagnoses (which counters support), predictions and probes as
// the document has them.
#pragma once

#include <string>

#include "base/json.hpp"
#include "report/attribution_report.hpp"

namespace fathom::report {

// REQUIRES: `summary.attribution` is there. Throws Error{bad_file}. Its gates are those that follow
// from the samples and then the others as stored; without all of them passing it has no diagnoses.
AttributionReport attribution_from_document(const Json& document);

// How the steps of each depth spread: the tails, and whether rounds, blocks or steps differ most.
// REQUIRES: a document that attribution_from_document() took.
std::string spread_text(const Json& document);

// The part of `summary.attribution` that the samples give.
Json attribution_figures(const AttributionReport& report, const Json& document);

}  // namespace fathom::report

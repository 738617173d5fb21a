// SPDX-License-Identifier: Apache-2.0
// Where the records of watched steps come from: op scopes where ops run on the host, else the
// backend's own source. A device is measured in a process of its own, into which the profiler comes
// when all that is quoted is measured: this program once more, with a hidden flag, which hands its
// blocks back as JSON through a pipe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cli/command.hpp"
#include "device/trace.hpp"
#include "fathom/fathom.hpp"
#include "measure/observation.hpp"

namespace fathom::cli {

inline constexpr const char* kCensusChildFlag = "--census-child";

// Whether steps are watched by the backend's own source: in a process of its own, since what that
// does to a process stays. Touches no device, like the next one.
bool is_watched_apart(const CommonFlags& common);

// Throws Error{unavailable} when the backend cannot trace.
void require_trace_source(const CommonFlags& common);

// `n_ops`: of a step. A device's names what is captured from then on.
std::unique_ptr<TraceSource> make_trace_source(const CommonFlags& common, size_t n_ops);

struct CensusResult {
  measure::Observation observation;
  uint64_t logits_hash[2] = {0, 0};  // of a watched step at each anchor
};
// Of each engine.
Json census_json(const std::vector<CensusResult>& results, const std::vector<int64_t>& depths);
std::vector<CensusResult> census_from_json(const Json& json);

// Runs this program again with `arguments` and kCensusChildFlag. Throws what the child threw, by
// its exit status and its line.
std::vector<CensusResult> census_in_child(const std::vector<std::string>& arguments);

}  // namespace fathom::cli

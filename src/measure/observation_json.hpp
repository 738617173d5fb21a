// SPDX-License-Identifier: Apache-2.0
// Observations as JSON, in which they cross from a process to another and into result files.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.hpp"
#include "measure/observation.hpp"

namespace fathom::measure {

// A result document's samples, one for each block, and what else an attribution needs of them; all
// but the steps shown. `depths` are in tokens and distinct.
Json observation_samples(const Observation& observation, const std::vector<int64_t>& depths,
                         int configuration = 0);
Json observation_header(const Observation& observation, const std::vector<int64_t>& depths);
// Samples of other arms and configurations are passed over. Throws Error{bad_file} for a document
// that is none, or with figures that no run of ours can have.
Observation observation_from_json(const Json& header, const Json& samples, int configuration = 0);
// Throws Error{bad_file} unless attribute() can be asked: each depth has the same rounds, whole
// ones.
void require_attributable(const Observation& observation);

Json trace_step_json(const TraceStep& step);
TraceStep trace_step_from_json(const Json& json);

}  // namespace fathom::measure

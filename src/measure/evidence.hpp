// SPDX-License-Identifier: Apache-2.0
// What counters and sampled stalls say of the ops of a step, from processes that do nothing else:
// the runs as the device gave them, which cross from one process to another and into result files
// as JSON, and the evidence for one op that follows. No time is taken from these runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "device/counters.hpp"
#include "device/device_api.hpp"
#include "device/stalls.hpp"
#include "measure/diagnosis.hpp"

namespace fathom::measure {

// Logical counters that evidence is made of; where a device lacks one, what it would tell is
// missing.
std::vector<std::string> evidence_counters();

struct OpLaunch {
  std::string op;
  KernelLaunch launch;
};

struct Counted {
  CounterRun runs[2];              // at both anchors
  std::vector<OpLaunch> launches;  // of a step at the deeper anchor
  std::string problem;             // not empty: why there is nothing
};

struct Sampled {
  std::map<std::string, StallProfile> ops;  // at the deeper anchor
  std::string problem;                      // as above
};

// `units`: compute units of the device.
Evidence evidence_of(const std::string& op, const Counted& counted, const Sampled& sampled,
                     int64_t units);

Json counted_json(const Counted& counted);
Json sampled_json(const Sampled& sampled);  // of each kernel the places with the most samples
// Throw Error{bad_file} for JSON that is none.
Counted counted_from_json(const Json& json);
Sampled sampled_from_json(const Json& json);

}  // namespace fathom::measure

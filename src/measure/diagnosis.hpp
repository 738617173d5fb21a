// SPDX-License-Identifier: Apache-2.0
// Why an op grows with depth, by fixed tests over evidence; what is missing is named, and without
// enough of it the verdict is `undetermined`.
//   bandwidth       memory rate of the growth >= 80 % of the measured peak
//   compute         rate of the growth >= 60 % of the measured peak
//   parallelism     compute units active < 80 % of the time; few blocks alone decide nothing
//   memory latency  memory and compute both < 60 %, units active >= 80 %, and waiting for loads the
//                   largest stall
//   launch          the growth of the idle time is most of the growth of the step
// Declared bytes and operations are the least that an op moves and does. So they can prove the
// first two without counters, but never that a limit was not met.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/decomposition.hpp"

namespace fathom::measure {

enum class Verdict { bandwidth, memory_latency, parallelism, compute, launch, undetermined };
const char* verdict_name(Verdict verdict);
// What to change: "more bytes saved: ..."
const char* lever_of(Verdict verdict);

// What counters and launches say of an op at the deeper anchor; empty = not known.
struct Evidence {
  std::optional<double> memory_bytes;   // moved, of a step
  std::optional<double> units_active;   // share of the time in which compute units had work
  std::optional<double> compute_share;  // of the busiest arithmetic pipe's peak
  std::string top_stall;                // name of the largest stall reason
  std::string stall_site;               // where, and which loads it waits for
  std::optional<int64_t> blocks;        // of the largest launch
  std::optional<int64_t> units;         // that can run them
  std::string why_no_counters;          // not empty: why the counters are missing
};

struct Diagnosis {
  std::string op;  // or "gaps"
  Verdict verdict = Verdict::undetermined;
  std::vector<std::string> known;    // sentences with figures
  std::vector<std::string> missing;  // what would decide
};

Diagnosis diagnose(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks);
// Of the idle time; null where it carries less than half of the step's growth.
std::optional<Diagnosis> diagnose_gaps(const Attribution& attribution);

}  // namespace fathom::measure

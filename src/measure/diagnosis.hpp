// SPDX-License-Identifier: Apache-2.0
// Why an op grows with depth, by fixed tests over evidence; what is missing is named, and without
// enough of it the verdict is `undetermined`.
//   bandwidth       memory rate of the growth >= 80 % of the measured peak
//   compute         rate of the growth >= 60 % of the measured peak, and waiting for loads not the
//                   largest stall
//   parallelism     compute units active < 80 % of the time; few blocks or waves alone decide
//                   nothing
//   memory latency  memory and compute both < 60 %, units active >= 80 %, and waiting for loads the
//                   largest stall
//   launch          the growth of the idle time is most of the growth of the step, and a step whose
//                   kernels are launched one by one, unwatched, takes longer than its graph
// An op that declares the same work at both depths is `undetermined`, unless counters prove that it
// reads more from memory: what limits it does so at both. Declared bytes and operations are the
// least that an op moves and does. So they can prove the first two without counters, but never that
// a limit was not met.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/decomposition.hpp"

namespace fathom::measure {

enum class Bottleneck { bandwidth, memory_latency, parallelism, compute, launch, undetermined };
const char* bottleneck_name(Bottleneck verdict);
// What to change: "more bytes saved: ..."
const char* lever_of(Bottleneck verdict);

// What counters and launches say of an op at the deeper anchor; empty = not known. Bytes are those
// of a step that crossed the memory bus; `_lo` is at the shallow anchor.
struct Evidence {
  std::optional<double> memory_bytes, memory_bytes_lo;  // read and written
  std::optional<double> read_bytes, read_bytes_lo;
  bool reads_prefetch = true;  // whether bytes that prefetchers read are among those
  std::optional<double> instructions_per_cycle, instructions_per_cycle_lo;  // of a host's threads
  std::optional<double> backend_stalled;                                    // share of their cycles
  std::optional<double> busiest_cycles, busiest_cycles_lo;  // in which the busiest unit had work
  std::optional<double> units_active;   // share of the time in which compute units had work
  std::optional<double> compute_share;  // of the busiest arithmetic pipe's peak
  std::string compute_pipe;             // which that is
  std::optional<double> occupancy;      // resident warps over those that fit
  std::string top_stall;                // name of the largest stall reason
  std::optional<double> top_stall_share;
  std::string stall_site;          // where, and which loads it waits for
  std::optional<int64_t> blocks;   // of the largest launch
  std::optional<double> waves;     // blocks of that launch over those that fit on the device
  std::optional<int64_t> units;    // that can run them
  std::string why_no_counters;     // not empty: why counters are missing
  std::string why_no_stalls;       // and stalls
  std::vector<std::string> notes;  // how counters differ from what they are taken for
};

// Whether a stall is waiting for loads: for registers that they fill, or for the barrier at which
// bulk copies end.
bool waits_for_loads(const std::string& stall);

// How the bytes that counters saw go with those that an op declares.
enum class BytesCheck { as_declared, re_reads, l2_served, cached_or_prefetched };
// "as declared", "re-reads", "L2-served", "cached or prefetched"
const char* bytes_check_name(BytesCheck check);
// Null where nothing is declared or counted. `prefetch`: Evidence::reads_prefetch.
std::optional<BytesCheck> check_bytes(std::optional<double> read_bytes, int64_t declared_bytes,
                                      bool prefetch = true);

// A step at both anchors, unwatched, whose kernels are launched one by one.
struct EagerSteps {
  double ns[2] = {0, 0};
};

struct Diagnosis {
  std::string op;  // or "gaps"
  Bottleneck verdict = Bottleneck::undetermined;
  std::vector<std::string> known;    // sentences with figures
  std::vector<std::string> missing;  // what would decide
};

Diagnosis diagnose(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks);
// Of the idle time; null where it carries less than half of the step's growth.
// `eager`: what tells whether launching costs anything here, where it was measured.
std::optional<Diagnosis> diagnose_gaps(const Attribution& attribution,
                                       const std::optional<EagerSteps>& eager = std::nullopt);

}  // namespace fathom::measure

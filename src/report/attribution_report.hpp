// SPDX-License-Identifier: Apache-2.0
// What `fathom attribute` found, as a table for the terminal, as the summary of a result document,
// and as a page. A report whose gates did not all pass shows what was measured, but no diagnosis.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "measure/attribution.hpp"
#include "measure/decomposition.hpp"
#include "measure/diagnosis.hpp"
#include "measure/overlap.hpp"
#include "report/evidence_report.hpp"
#include "report/perfetto.hpp"
#include "report/result.hpp"

namespace fathom::report {

// One knob changed, what the decomposition predicted, and what came.
struct Confirmation {
  struct Effect {
    std::string what;                    // "attn in the engine", "the step's wall time"
    double base_ns = 0, changed_ns = 0;  // growth between the anchors
    std::optional<std::array<double, 2>> predicted_ns;  // least and most of changed_ns
    measure::Interval changed_ci{0, 0};
  };
  // The op alone, in microseconds of a call at the deeper anchor.
  struct Probed {
    std::string memory;  // "hot" or "cold"
    double base_us = 0, changed_us = 0;
    measure::Interval base_ci{0, 0}, changed_ci{0, 0};
    double ratio() const { return changed_us / base_us; }
  };
  std::string knob;   // "threads 2 -> 1"
  std::string basis;  // how it was predicted
  std::vector<Effect> effects;
  std::string probed_op;          // empty: it was not probed
  std::vector<Probed> probed;     // hot, cold
  double engine_ratio = 1;        // of the probed op's time at the deeper anchor, in the engine
  std::vector<std::string> gaps;  // sentences: where prediction and measurement part
  std::string problem;            // not empty: nothing is shown, and why
};

struct AttributionReport {
  std::string model, backend, device, kv_type;
  int threads = 0;
  int n_parallel = 1;      // sequences of a step
  bool on_device = false;  // that does not share the host's memory
  std::vector<int64_t> depths;
  std::vector<std::string> kv_fill;  // of each depth
  std::vector<int64_t> kv_bytes;     // of all caches, that a step at each depth declares to read
  int64_t kv_token_bytes = 0;        // of one token in the cache
  size_t rounds = 0;
  int refused_windows = 0;           // with lost or broken records, measured again
  std::vector<int64_t> block_steps;  // of each depth
  std::string stopped;
  uint64_t seed = 0;
  measure::Attribution attribution;
  measure::Peaks peaks;
  std::vector<measure::OpCost> costs_lo, costs_hi;
  std::vector<measure::Decomposition> decompositions;  // of the ops that grow
  std::vector<OpEvidence> evidence;                    // of the same
  std::vector<measure::Overlap> overlaps;
  std::optional<measure::EagerSteps> eager;
  std::vector<measure::Diagnosis> diagnoses;  // empty unless trusted
  std::vector<Confirmation> confirmations;
  std::vector<Gate> gates;  // of the figures: a diagnosis needs them all
  // Of the machine: a result for which one fails is marked and ends with exit status 4, but what
  // was measured in one run still explains itself.
  std::vector<Gate> machine_gates;
  // `verbatim_changed`, of each confirmation in their order; none on a host. One that fails
  // withholds its confirmation, see add_confirmation_gate().
  std::vector<Gate> confirmation_gates;
  std::string watermark;  // why nothing may be quoted, or empty

  bool trusted() const;
  std::vector<Gate> all_gates() const;
};

// Of the newest confirmation. If it failed, the confirmation says why instead of its figures; the
// diagnosis of the base stands.
void add_confirmation_gate(AttributionReport& report, Gate gate);
// Nothing of it but its knob and why.
void withhold(Confirmation& confirmation, const std::string& why);

// "1 watched window had lost or broken records and was measured again."
std::string refused_text(const AttributionReport& report);
std::string attribution_text(const AttributionReport& report, bool colour);
Json attribution_json(const AttributionReport& report);
// One file that needs no other; `document` is put into it as data, but for the times of launches.
std::string attribution_html(const AttributionReport& report, const Json& document);
// A track for each anchor.
std::vector<TraceTrack> attribution_tracks(const measure::Observation& observation,
                                           const std::vector<int64_t>& depths);

int64_t total_bytes(const std::vector<measure::OpCost>& costs);

// The ops in whose growth the interval excludes 0 and which carry at least 1 % of the step's.
bool grows(const measure::OpGrowth& op, const measure::Attribution& attribution);

}  // namespace fathom::report

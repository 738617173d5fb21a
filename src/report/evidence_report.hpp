// SPDX-License-Identifier: Apache-2.0
// The part of an attribution's report that counters, stalls and records beside the census are in.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "measure/diagnosis.hpp"

namespace fathom::report {

struct AttributionReport;

// Of an op that grows, at the deeper anchor.
struct OpEvidence {
  std::string op;
  int64_t declared_bytes = 0;  // of a step
  measure::Evidence evidence;
};

// One sentence for each op that starts under another's time, more of it at the deeper anchor.
std::vector<std::string> overlap_sentences(const AttributionReport& report);
// What a step takes whose kernels are launched one by one; empty where that is not known.
std::string eager_sentence(const AttributionReport& report);
// Why counters or stalls are missing, each reason once.
std::vector<std::string> missing_evidence(const AttributionReport& report);

// A table as heading and rows, for the terminal and the page; no rows without any counter.
struct EvidenceTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};
EvidenceTable evidence_table(const AttributionReport& report);

std::string evidence_text(const AttributionReport& report, bool colour);
Json evidence_json(const AttributionReport& report);  // one object for each op that grows

}  // namespace fathom::report

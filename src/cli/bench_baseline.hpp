// SPDX-License-Identifier: Apache-2.0
// An earlier result of `bench`, to set a new one against: --compare. The two did not run in turns,
// so what changed on the machine between them must be smaller than the difference: the read ceiling
// and the clocks of both say how much it changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/bench_comparison.hpp"
#include "report/bench_summary.hpp"

namespace fathom::cli {

// A result document (--json), or the rows that -o json prints, ours or llama-bench's.
struct BenchBaseline {
  std::string path;
  std::vector<report::BenchRow> rows;         // with samples and figures
  std::vector<std::optional<double>> floors;  // of each row, from its A/A twin
  std::vector<double> ceiling_gbps;
  std::vector<std::string> command;  // empty for plain rows
  std::string untrusted;             // why not; empty when it is
};

// Throws Error{bad_file} with one line.
BenchBaseline load_baseline(const std::string& path);

// For each of our rows; those without a counterpart say so.
std::vector<report::RowComparison> compare_rows(const report::BenchSummary& ours,
                                                const std::vector<double>& ceiling_gbps,
                                                const BenchBaseline& baseline);

// What unpaired means, and how to pair.
std::string unpaired_note(const BenchBaseline& baseline);

}  // namespace fathom::cli

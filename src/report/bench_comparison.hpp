// SPDX-License-Identifier: Apache-2.0
// Rows of `bench` set against a baseline's: speeds, the ratio with its interval, the verdict
// (measure/comparison.hpp). Of rows from separate runs, or of processes that ran in turns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/comparison.hpp"
#include "report/fields.hpp"
#include "report/result.hpp"

namespace fathom::report {

struct RowComparison {
  std::string row;  // "tg128 @ d4096"
  std::string type_k = "f16", type_v = "f16";
  int n_threads = 0;
  double baseline_ts = 0, ts = 0;  // medians, tokens a second
  bool found = false;              // in the baseline
  measure::Comparison time = {};   // of ours to the baseline's
  // Of medians, rounds drawn in pairs: bootstrap, BCa from 20 rounds on. Only where rounds pair.
  double median_ratio = 1;
  std::optional<measure::Interval> median_ratio_ci = {};
  std::optional<measure::NoiseFloor> noise = {};  // of processes with twins
  // Hashes of the last logits, of all processes of one program; empty when they differ.
  std::string hash = {}, baseline_hash = {};
  Json json() const;
};

// Of samples {arm: "tg128", side: "ours" | "twin" | "baseline", key, tokens, round, ns, ...}: `key`
// tells rows apart, the twin is a third process that does what ours does. Throws Error{bad_file}.
std::vector<RowComparison> compare_processes(const Fields& samples);

// Of each row: whether ours and its twin are told apart, and whether ours always ends alike.
std::vector<Gate> process_gates(const std::vector<RowComparison>& rows);

// Markdown, a row each.
std::string comparison_text(const std::vector<RowComparison>& rows);

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// A result document's summary and gates, computed again from its samples, and where what it stores
// differs. A table says which documents are recomputed by what; a new command adds its row.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "report/result.hpp"

namespace fathom::report {

struct Recomputed {
  Json summary = Json::object();   // the part of `summary` that the samples give
  std::vector<Gate> gates;         // those that they decide
  std::string text;                // the tables of the command, ready to print
  std::vector<std::string> notes;  // what could not be recomputed, and why
};

struct Recomputer {
  const char* name;
  // Neither may read beyond what Fields checks: the document is a stranger's.
  bool (*applies)(const Json& document);
  Recomputed (*run)(const Json& document);  // throws Error{bad_file}
};
std::span<const Recomputer> recomputers();

// What of a document was found.
struct Reviewed {
  std::string command;  // as it was given
  Recomputed recomputed;
  std::vector<std::string>
      differences;          // "summary.rows[0].median_ns: stored 5, the samples give 6"
  std::vector<Gate> gates;  // recomputed where the samples decide, else as stored
  size_t n_missing = 0;     // figures that samples give and the file does not store
  size_t n_stored = 0;      // of the gates, those as stored
  bool trusted() const;
};

inline constexpr size_t kLargestDocument = size_t{256} << 20;  // bytes

// Throws Error{bad_file} with one line that says what is wrong with it.
Reviewed review(const Json& document);

// The command's page, drawn again. Throws Error{bad_file}; of commands without one too.
std::string page_of(const Json& document);

// The same numbers, to the last digits that printing and adding up in another order may cost.
bool same_json(const Json& stored, const Json& recomputed);

// Mean, standard error and quantiles of scores; of `perplexity`.
Json spread_json(const std::vector<double>& values);

}  // namespace fathom::report

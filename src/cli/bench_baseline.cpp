// SPDX-License-Identifier: Apache-2.0
// Reading the baseline, finding each row's counterpart, and the floor below which a difference
// between two runs proves nothing.
#include "cli/bench_baseline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/arguments.hpp"
#include "report/recompute.hpp"

namespace fathom::cli {
namespace {

using report::BenchRow;
using report::Fields;

constexpr size_t kLeastCeilings = 4;

std::vector<double> positive_numbers(const Fields& array) {
  std::vector<double> out;
  if (array.size() > report::kMostRounds) {
    fail(ErrorCode::bad_file, "{}: more than {} samples", array.path(), report::kMostRounds);
  }
  for (size_t i = 0; i < array.size(); ++i) out.push_back(array.at(i).positive());
  return out;
}

void read_rows(const Json& json, BenchBaseline& out) {
  const Fields rows(json, "rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    BenchRow row = report::bench_row_inputs(rows.at(i));
    row.samples_ns = positive_numbers(rows.at(i).at("samples_ns"));
    if (row.samples_ns.empty()) rows.at(i).at("samples_ns").refuse("at least one sample");
    row.logits_hash = rows.at(i).text_at("logits_hash");
    row.clock_mhz = rows.at(i).number_at("clock_mhz");
    row.watermark = rows.at(i).text_at("watermark");
    if (!row.watermark.empty()) out.untrusted = row.watermark;
    out.floors.emplace_back();
    out.rows.push_back(std::move(row));
  }
}

void read_document(const Json& json, BenchBaseline& out) {
  const report::Reviewed reviewed = report::review(json);
  const report::BenchDocument stored = report::bench_document_of(json);
  const Fields samples = Fields(json, "").at("samples");
  const report::BenchSummary summary =
      report::summarise_bench(stored.rows, samples, stored.configurations, stored.seed);
  out.rows = summary.rows;
  for (const BenchRow& row : out.rows) out.floors.push_back(summary.floor(row.configuration));
  out.ceiling_gbps = report::ceilings_of(samples);
  const Fields words = Fields(json, "").at("command");
  for (size_t i = 0; i < words.size(); ++i) out.command.push_back(words.at(i).text());
  for (const report::Gate& gate : reviewed.gates) {
    if (!gate.pass) out.untrusted = fmt::format("its gate {} failed: {}", gate.id, gate.why);
  }
  if (!reviewed.differences.empty()) {
    out.untrusted = "what it stores is not what its samples give (fathom report shows it)";
  }
}

bool same_test(const BenchRow& a, const BenchRow& b) {
  return a.test_name() == b.test_name() && a.kv_fill == b.kv_fill && a.type_k == b.type_k &&
         a.type_v == b.type_v && a.n_threads == b.n_threads && a.n_ubatch == b.n_ubatch;
}

// How far apart two medians of the machine itself are, as a share.
double drift_of(double a, double b) { return std::exp(std::abs(std::log(a / b))) - 1; }

struct Floor {
  double share = 0;
  std::string unknown;  // why no difference can be believed
};

// What may be noise: the A/A floors, and what ceilings and clocks changed by between the runs.
Floor floor_between(const BenchRow& ours, std::optional<double> our_floor,
                    const std::vector<double>& our_ceiling, const BenchRow& theirs,
                    std::optional<double> their_floor, const std::vector<double>& their_ceiling) {
  Floor floor;
  const bool has_twin = our_floor || their_floor;
  floor.share =
      has_twin ? std::max(our_floor.value_or(0), their_floor.value_or(0)) : measure::kSameRatio;
  if (ours.clock_mhz && theirs.clock_mhz && *ours.clock_mhz > 0 && *theirs.clock_mhz > 0) {
    floor.share = std::max(floor.share, drift_of(*ours.clock_mhz, *theirs.clock_mhz));
  }
  if (ours.cpu_info != theirs.cpu_info || ours.gpu_info != theirs.gpu_info) {
    floor.unknown = fmt::format("the baseline is of another machine ({})",
                                theirs.gpu_info.empty() ? theirs.cpu_info : theirs.gpu_info);
  } else if (std::min(our_ceiling.size(), their_ceiling.size()) < kLeastCeilings) {
    floor.unknown = fmt::format(
        "{} samples of the read ceiling in both runs are needed to know what the machine changed "
        "by "
        "between them",
        kLeastCeilings);
  } else {
    const measure::Comparison ceiling = measure::compare_unpaired(their_ceiling, our_ceiling, 0);
    floor.share = std::max({floor.share, ceiling.ci.hi - 1, 1 / ceiling.ci.lo - 1});
  }
  return floor;
}

double median_ts(const BenchRow& row) { return measure::median(row.samples_ts()); }

}  // namespace

BenchBaseline load_baseline(const std::string& path) {
  const std::string text = read_text(path, report::kLargestDocument);
  const Json json = parse_json(text, path);
  BenchBaseline out;
  out.path = path;
  try {
    if (json.is_array()) {
      read_rows(json, out);
    } else {
      read_document(json, out);
    }
    if (out.rows.empty()) fail(ErrorCode::bad_file, "rows: expected at least one, found none");
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", path, e.what());
  }
  return out;
}

std::vector<report::RowComparison> compare_rows(const report::BenchSummary& ours,
                                                const std::vector<double>& ceiling_gbps,
                                                const BenchBaseline& baseline) {
  std::vector<report::RowComparison> out;
  std::vector<measure::Comparison> family;
  std::vector<size_t> compared;
  std::vector<std::string> unknown;
  for (const BenchRow& row : ours.rows) {
    report::RowComparison& c = out.emplace_back();
    c.row = row.test_name();
    c.type_k = row.type_k;
    c.type_v = row.type_v;
    c.n_threads = row.n_threads;
    c.ts = median_ts(row);
    const auto found = std::find_if(baseline.rows.begin(), baseline.rows.end(),
                                    [&](const BenchRow& b) { return same_test(row, b); });
    if (found == baseline.rows.end()) {
      c.time.why = "the baseline has no such row";
      continue;
    }
    c.found = true;
    c.baseline_ts = median_ts(*found);
    const size_t at = static_cast<size_t>(found - baseline.rows.begin());
    const Floor floor = floor_between(row, ours.floor(row.configuration), ceiling_gbps, *found,
                                      baseline.floors[at], baseline.ceiling_gbps);
    family.push_back(measure::compare_unpaired(found->samples_ns, row.samples_ns, floor.share));
    compared.push_back(out.size() - 1);
    unknown.push_back(baseline.untrusted.empty()
                          ? floor.unknown
                          : "the baseline is not to be trusted: " + baseline.untrusted);
  }
  measure::judge(family);
  for (size_t i = 0; i < family.size(); ++i) {
    if (!unknown[i].empty()) {
      family[i].verdict = measure::Verdict::cannot_tell;
      family[i].why = unknown[i];
    }
    out[compared[i]].time = family[i];
  }
  return out;
}

std::string unpaired_note(const BenchBaseline& baseline) {
  return fmt::format(
      "\nAgainst {}, unpaired: the two ran at different times, so only differences beyond the "
      "floor "
      "count, which is what A/A twins, read ceilings and clocks of both differ by. To pair them, "
      "run "
      "the baseline's program in turns with this one: --against PROGRAM.\n",
      printable(baseline.path));
}

}  // namespace fathom::cli

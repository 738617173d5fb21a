// SPDX-License-Identifier: Apache-2.0
// The comparison of processes by rounds, its JSON and its table.
#include "report/bench_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "measure/statistics.hpp"
#include "report/table.hpp"

namespace fathom::report {
namespace {

constexpr size_t kMostRoundsOfProcesses = 4096;
constexpr uint64_t kBootstrapSeed = 1;

// The times of one row by round, of each side.
struct Sides {
  RowComparison row;
  double tokens = 0;
  std::map<int64_t, double> ours, twin, baseline;
  std::set<std::string> hashes, baseline_hashes;
};

std::map<int64_t, double>& side_of(Sides& sides, const Fields& sample) {
  const std::string side = sample.at("side").text();
  if (side == "ours") return sides.ours;
  if (side == "twin") return sides.twin;
  if (side != "baseline") sample.at("side").refuse("ours, twin or baseline");
  return sides.baseline;
}

// Sides in the order in which their rows first appear.
std::vector<Sides> sides_of(const Fields& samples) {
  std::vector<Sides> out;
  std::map<std::string, size_t> index;
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields sample = samples.at(i);
    const auto [found, is_new] = index.emplace(sample.at("key").text(), out.size());
    if (is_new) {
      Sides& sides = out.emplace_back();
      sides.row.row = sample.at("arm").text();
      sides.row.type_k = sample.text_at("type_k", "f16");
      sides.row.type_v = sample.text_at("type_v", "f16");
      sides.row.n_threads = static_cast<int>(sample.whole_at("n_threads", 0));
      sides.tokens = sample.at("tokens").positive();
    }
    Sides& sides = out[found->second];
    std::map<int64_t, double>& times = side_of(sides, sample);
    (&times == &sides.baseline ? sides.baseline_hashes : sides.hashes)
        .insert(sample.text_at("logits_hash"));
    const int64_t round = sample.at("round").whole(0);
    if (!times.emplace(round, sample.at("ns").positive()).second) {
      fail(ErrorCode::bad_file, "{}: round {} is there twice", sample.path(), round);
    }
    if (times.size() > kMostRoundsOfProcesses) {
      fail(ErrorCode::bad_file, "{}: more than {} rounds", sample.path(), kMostRoundsOfProcesses);
    }
  }
  return out;
}

// The times of the rounds that both have.
struct Paired {
  std::vector<double> a, b;
};
Paired paired(const std::map<int64_t, double>& a, const std::map<int64_t, double>& b) {
  Paired out;
  for (const auto& [round, time] : a) {
    const auto found = b.find(round);
    if (found == b.end()) continue;
    out.a.push_back(time);
    out.b.push_back(found->second);
  }
  return out;
}

double median_ts(const std::map<int64_t, double>& times, double tokens) {
  std::vector<double> speeds;
  for (const auto& [round, ns] : times) speeds.push_back(1e9 * tokens / ns);
  return measure::median(speeds);
}

std::string ratio_text(const measure::Comparison& time) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", 1 / time.ratio, 1 / time.ci.hi, 1 / time.ci.lo);
}

}  // namespace

Json RowComparison::json() const {
  Json out{{"test", row},
           {"type_k", type_k},
           {"type_v", type_v},
           {"n_threads", n_threads},
           {"verdict", measure::verdict_name(time.verdict)},
           {"why", time.why},
           {"median_ts", ts}};
  if (!found) return out;
  out["baseline_ts"] = baseline_ts;
  out["speed_ratio"] = 1 / time.ratio;
  out["speed_ratio_ci"] = {1 / time.ci.hi, 1 / time.ci.lo};
  out["floor"] = time.floor;
  out["p_holm"] = time.p;
  out["family"] = time.family;
  out["paired"] = time.paired;
  out["n"] = {time.n_a, time.n_b};
  if (median_ratio_ci) {
    out["median_ratio"] = median_ratio;
    out["median_ratio_ci"] = {median_ratio_ci->lo, median_ratio_ci->hi};
    out["logits_hash"] = hash;
    out["baseline_logits_hash"] = baseline_hash;
  }
  return out;
}

std::vector<RowComparison> compare_processes(const Fields& samples) {
  std::vector<RowComparison> out;
  std::vector<measure::Comparison> family;
  for (Sides& sides : sides_of(samples)) {
    const Paired both = paired(sides.baseline, sides.ours);
    if (both.a.empty()) {
      fail(ErrorCode::bad_file, "{}: no round has it of both programs", sides.row.row);
    }
    const Paired twins = paired(sides.ours, sides.twin);
    if (twins.a.size() >= measure::kLeastForInterval) {
      sides.row.noise = measure::noise_floor(twins.a, twins.b);
    }
    const double floor = sides.row.noise ? sides.row.noise->floor : measure::kSameRatio;
    family.push_back(measure::compare_paired(both.a, both.b, floor));
    sides.row.median_ratio = measure::median(both.a) / measure::median(both.b);
    sides.row.median_ratio_ci = measure::bootstrap_ratio(both.b, both.a, kBootstrapSeed);
    if (sides.hashes.size() == 1) sides.row.hash = *sides.hashes.begin();
    if (sides.baseline_hashes.size() == 1) sides.row.baseline_hash = *sides.baseline_hashes.begin();
    sides.row.found = true;
    sides.row.baseline_ts = median_ts(sides.baseline, sides.tokens);
    sides.row.ts = median_ts(sides.ours, sides.tokens);
    out.push_back(sides.row);
  }
  measure::judge(family);
  for (size_t i = 0; i < out.size(); ++i) out[i].time = family[i];
  return out;
}

std::vector<Gate> process_gates(const std::vector<RowComparison>& rows) {
  std::vector<Gate> gates;
  for (const RowComparison& row : rows) {
    if (row.noise) gates.push_back(noise_gate(row.row, *row.noise));
    Gate gate{.id = "output_hash", .pass = !row.hash.empty(), .value = {}, .limit = {}, .why = ""};
    gate.why = !gate.pass ? fmt::format("{}: processes end with different logits", row.row)
               : row.hash == row.baseline_hash
                   ? fmt::format("{}: all processes of both programs end with logits {}", row.row,
                                 row.hash)
                   : fmt::format("{}: all of ours end with logits {}, the baseline's with {}",
                                 row.row, row.hash,
                                 row.baseline_hash.empty() ? "different ones" : row.baseline_hash);
    gates.push_back(std::move(gate));
  }
  return gates;
}

std::string comparison_text(const std::vector<RowComparison>& rows) {
  Table table({{"test", Align::left},
               {"baseline t/s"},
               {"t/s"},
               {"speed ratio, 95 %"},
               {"floor"},
               {"verdict", Align::left},
               {"why", Align::left}});
  for (const RowComparison& row : rows) {
    table.add({row.row, row.found ? fmt::format("{:.2f}", row.baseline_ts) : "-",
               fmt::format("{:.2f}", row.ts), row.found ? ratio_text(row.time) : "-",
               row.found ? fmt::format("{:.2f} %", 100 * row.time.floor) : "-",
               fmt::format("**{}**", measure::verdict_name(row.time.verdict)),
               printable(row.time.why, std::string::npos)});
  }
  return table.markdown();
}

}  // namespace fathom::report

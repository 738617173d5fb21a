// SPDX-License-Identifier: Apache-2.0
// Sentences, the table and the JSON of the evidence.
#include "report/evidence_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/attribution_report.hpp"
#include "report/table.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

// What an op shrinks by is worth a sentence from here on, of the step's growth; and how much of it
// the overlap must explain.
constexpr double kMovedShare = 0.05;
constexpr double kMovedNs = 1000;
constexpr double kExplainedShare = 0.5;

const measure::OpGrowth* find(const AttributionReport& r, const std::string& op) {
  const auto found = std::find_if(r.attribution.ops.begin(), r.attribution.ops.end(),
                                  [&](const measure::OpGrowth& growth) { return growth.op == op; });
  return found == r.attribution.ops.end() ? nullptr : &*found;
}

std::string megabytes(std::optional<double> bytes) {
  return bytes ? fmt::format("{:.2f}", *bytes * 1e-6) : "-";
}

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.0f}", 100 * *share) : "-";
}

std::string check_text(const OpEvidence& e) {
  const auto check =
      measure::check_bytes(e.evidence.read_bytes, e.declared_bytes, e.evidence.reads_prefetch);
  if (!check) return "-";
  return fmt::format("{:.2f} x, {}", *e.evidence.read_bytes / static_cast<double>(e.declared_bytes),
                     measure::bytes_check_name(*check));
}

std::string pipe_text(const measure::Evidence& e) {
  return e.compute_share ? fmt::format("{} {:.0f} %", e.compute_pipe, 100 * *e.compute_share) : "-";
}

std::string stall_text(const measure::Evidence& e) {
  if (e.top_stall.empty()) return "-";
  return e.top_stall_share ? fmt::format("{} {:.0f} %", e.top_stall, 100 * *e.top_stall_share)
                           : e.top_stall;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json op_json(const OpEvidence& of) {
  const measure::Evidence& e = of.evidence;
  const auto check = measure::check_bytes(e.read_bytes, of.declared_bytes, e.reads_prefetch);
  return {{"op", of.op},
          {"declared_bytes", of.declared_bytes},
          {"read_bytes", {or_null(e.read_bytes_lo), or_null(e.read_bytes)}},
          {"memory_bytes", {or_null(e.memory_bytes_lo), or_null(e.memory_bytes)}},
          {"bytes_check", check ? Json(measure::bytes_check_name(*check)) : Json(nullptr)},
          {"instructions_per_cycle",
           {or_null(e.instructions_per_cycle_lo), or_null(e.instructions_per_cycle)}},
          {"backend_stalled", or_null(e.backend_stalled)},
          {"units", or_null(e.units)},
          {"busiest_cycles", {or_null(e.busiest_cycles_lo), or_null(e.busiest_cycles)}},
          {"units_active", or_null(e.units_active)},
          {"compute_pipe", text_or_null(e.compute_pipe)},
          {"compute_share", or_null(e.compute_share)},
          {"occupancy", or_null(e.occupancy)},
          {"blocks", or_null(e.blocks)},
          {"waves", or_null(e.waves)},
          {"top_stall", text_or_null(e.top_stall)},
          {"top_stall_share", or_null(e.top_stall_share)},
          {"stall_site", text_or_null(e.stall_site)},
          {"why_no_counters", text_or_null(e.why_no_counters)},
          {"why_no_stalls", text_or_null(e.why_no_stalls)},
          {"notes", e.notes}};
}

}  // namespace

std::vector<std::string> overlap_sentences(const AttributionReport& r) {
  std::vector<std::string> out;
  const double least =
      std::max(kMovedNs, kMovedShare * std::abs(r.attribution.closure.growth.value));
  for (const measure::Overlap& overlap : r.overlaps) {
    const measure::OpGrowth* const op = find(r, overlap.op);
    const measure::OpGrowth* const under = find(r, overlap.under);
    if (!op || !under || op->growth.value > -least || under->growth.value < least) continue;
    if (overlap.growth_ns() < -kExplainedShare * op->growth.value) continue;
    out.push_back(fmt::format(
        "{} starts before {} ends: {} of it run under others at depth {} and {} at {}, so that it "
        "shrinks as the other grows: {} and {}, {} together",
        overlap.op, overlap.under, time_text(overlap.lo_ns), r.depths.front(),
        time_text(overlap.hi_ns), r.depths.back(), signed_time_text(op->growth.value),
        signed_time_text(under->growth.value),
        signed_time_text(op->growth.value + under->growth.value)));
  }
  return out;
}

std::string eager_sentence(const AttributionReport& r) {
  if (!r.eager) return "";
  return fmt::format("With its kernels launched one by one, unwatched, a step takes {} and {}.",
                     time_text(r.eager->ns[0]), time_text(r.eager->ns[1]));
}

std::vector<std::string> missing_evidence(const AttributionReport& r) {
  std::vector<std::string> out;
  const auto add = [&](const char* what, const std::string& why) {
    const std::string text = fmt::format("{}: {}", what, why);
    if (!why.empty() && std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
  };
  for (const OpEvidence& e : r.evidence) {
    add("no counters", e.evidence.why_no_counters);
    add("no stalls", e.evidence.why_no_stalls);
  }
  return out;
}

EvidenceTable evidence_table(const AttributionReport& r) {
  EvidenceTable out{{"counted in", fmt::format("MB read @{}", r.depths.front()),
                     fmt::format("@{}", r.depths.back()), "of the declared", "units busy %",
                     "busiest pipe", "warps %", "blocks", "waves", "largest stall"},
                    {}};
  for (const OpEvidence& of : r.evidence) {
    const measure::Evidence& e = of.evidence;
    if (!e.read_bytes && !e.units_active && e.top_stall.empty()) continue;
    out.rows.push_back({of.op, megabytes(e.read_bytes_lo), megabytes(e.read_bytes), check_text(of),
                        percent(e.units_active), pipe_text(e), percent(e.occupancy),
                        e.blocks ? fmt::format("{}", *e.blocks) : "-",
                        e.waves ? fmt::format("{:.2f}", *e.waves) : "-", stall_text(e)});
  }
  return out;
}

std::string evidence_text(const AttributionReport& r, bool colour) {
  std::string out;
  const EvidenceTable data = evidence_table(r);
  if (!data.rows.empty()) {
    std::vector<Table::Column> columns{{data.head[0], Align::left}};
    for (size_t i = 1; i < data.head.size(); ++i) columns.push_back({data.head[i]});
    Table table(columns);
    for (const auto& row : data.rows) table.add(row);
    out += "\n" + table.text(colour);
  }
  for (const std::string& why : missing_evidence(r)) out += fmt::format("There are {}.\n", why);
  for (const std::string& sentence : overlap_sentences(r)) out += sentence + ".\n";
  const std::string eager = eager_sentence(r);
  return eager.empty() ? out : out + eager + "\n";
}

Json evidence_json(const AttributionReport& r) {
  Json out = Json::array();
  for (const OpEvidence& e : r.evidence) out.push_back(op_json(e));
  return out;
}

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// The terminal's tables, and the summary as JSON.
#include "report/attribution_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.hpp"
#include "measure/device_flops.hpp"
#include "report/kernel_name.hpp"
#include "report/table.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

using measure::Estimate;

constexpr double kGrowingShare = 0.01;  // of the step's growth

std::string microseconds(double ns) { return fmt::format("{:.2f}", ns * 1e-3); }

std::string with_interval(const Estimate& e) {
  return fmt::format("{:+.2f} ± {:.2f}", e.value * 1e-3, e.half_width() * 1e-3);
}

std::string launches_text(const measure::OpGrowth& op) {
  return op.launches_lo == op.launches_hi ? fmt::format("{}", op.launches_hi)
                                          : fmt::format("{} -> {}", op.launches_lo, op.launches_hi);
}

std::string growth_table(const AttributionReport& r, bool colour) {
  const measure::Attribution& a = r.attribution;
  const double total = a.closure.growth.value;
  Table table({{"op", Align::left},
               {"launches"},
               {fmt::format("us @{}", r.depths.front())},
               {fmt::format("us @{}", r.depths.back())},
               {"growth us (95 %)"},
               {"us a launch"},
               {"% of growth"},
               {"", Align::left}});
  const auto share = [&](double ns) { return fmt::format("{:.1f}", 100 * ns / total); };
  for (const measure::OpGrowth& op : a.ops) {
    const int64_t n = std::max(op.launches_lo, op.launches_hi);
    table.add({op.op, launches_text(op), microseconds(op.lo_ns), microseconds(op.hi_ns),
               with_interval(op.growth),
               fmt::format("{:+.2f}", op.growth.value * 1e-3 / static_cast<double>(n)),
               share(op.growth.value),
               op.match == measure::Match::matched ? "" : measure::match_name(op.match)},
              grows(op, a) ? Paint::heading : Paint::plain);
  }
  table.add({"idle between them", "", microseconds(a.gaps_lo_ns), microseconds(a.gaps_hi_ns),
             with_interval(a.gaps), "", share(a.gaps.value), ""});
  table.add_rule();
  const double sum = a.closure.sum.value - a.closure.correction_ns;
  table.add({"sum", "", "", "", fmt::format("{:+.2f}", sum * 1e-3), "", share(sum), ""},
            Paint::heading);
  table.add(
      {"step, unwatched", "", microseconds(a.closure.unwatched_ns[0]),
       microseconds(a.closure.unwatched_ns[1]), with_interval(a.closure.growth), "", "100.0", ""},
      Paint::heading);
  table.add({"left over", "", "", "", with_interval(a.closure.residual), "",
             share(a.closure.residual.value),
             fmt::format("{} of {} ({})", a.closure.closes ? "within" : "beyond",
                         time_text(a.closure.limit_ns), a.closure.limit_why)},
            a.closure.closes ? Paint::good : Paint::bad);
  return table.text(colour);
}

// The launches of the growing ops that have several, kernel by kernel; sums over the layers.
std::string kernels_table(const AttributionReport& r, bool colour) {
  struct Row {
    std::string op, kernel;
    int ordinal;
    int64_t launches = 0;
    double lo_ns = 0, hi_ns = 0;
  };
  std::vector<Row> rows;
  for (const measure::LaunchGrowth& l : r.attribution.launches) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& known) {
      return known.op == l.key.op && known.ordinal == l.key.ordinal;
    });
    if (row == rows.end())
      row = rows.insert(rows.end(), {l.key.op, l.kernel_hi, l.key.ordinal, 0, 0, 0});
    ++row->launches;
    row->lo_ns += l.lo_ns;
    row->hi_ns += l.hi_ns;
  }
  const auto is_told = [&](const Row& row) {
    const bool has_others = std::any_of(rows.begin(), rows.end(), [&](const Row& other) {
      return other.op == row.op && other.ordinal > 0;
    });
    return has_others && std::any_of(r.decompositions.begin(), r.decompositions.end(),
                                     [&](const auto& d) { return d.op == row.op; });
  };
  std::erase_if(rows, [&](const Row& row) { return !is_told(row); });
  if (rows.empty()) return "";
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.op, a.ordinal) < std::tie(b.op, b.ordinal);
  });
  Table table({{"kernel", Align::left},
               {"launches"},
               {fmt::format("us a launch @{}", r.depths.front())},
               {fmt::format("@{}", r.depths.back())},
               {"growth us"}});
  for (const Row& row : rows) {
    const double n = static_cast<double>(row.launches);
    table.add({short_kernel_name(row.kernel), fmt::format("{}", row.launches),
               microseconds(row.lo_ns / n), microseconds(row.hi_ns / n),
               fmt::format("{:+.2f}", (row.hi_ns - row.lo_ns) * 1e-3)});
  }
  return "\n" + table.text(colour);
}

std::string parts_table(const AttributionReport& r, bool colour) {
  Table table({{"growth of", Align::left},
               {"us"},
               {"MB"},
               {"bytes at peak us"},
               {"arithmetic us"},
               {"exposed us"},
               {"read from", Align::left}});
  for (const measure::Decomposition& d : r.decompositions) {
    table.add({d.op, microseconds(d.growth_ns()),
               fmt::format("{:.2f}", static_cast<double>(d.bytes_hi - d.bytes_lo) * 1e-6),
               microseconds(d.bytes_growth_ns()),
               d.hi.compute_ns ? microseconds(*d.hi.compute_ns - *d.lo.compute_ns) : "-",
               microseconds(d.exposed_growth_ns()), measure::residence_name(d.residence)});
  }
  return table.text(colour);
}

std::string peaks_text(const measure::Peaks& peaks) {
  if (peaks.memory_gbps <= 0) return "";
  std::string out = fmt::format("Peaks of this run: memory {:.1f} GB/s", peaks.memory_gbps);
  if (peaks.cache_gbps) out += fmt::format(", cache {:.1f} GB/s", *peaks.cache_gbps);
  if (peaks.gflops) out += fmt::format(", f32 {:.0f} GFLOP/s", *peaks.gflops);
  if (peaks.f16_tensor_gflops) {
    out += fmt::format(", f16 tensor {:.0f} GFLOP/s", *peaks.f16_tensor_gflops);
  }
  if (peaks.int8_tensor_gops) {
    out += fmt::format(", int8 tensor {:.0f} Gop/s", *peaks.int8_tensor_gops);
  }
  return out + ".\n";
}

std::string diagnosis_text(const measure::Diagnosis& d, bool colour) {
  std::string out = painted(fmt::format("{}: {}", d.op, measure::bottleneck_name(d.verdict)),
                            Paint::heading, colour) +
                    "\n";
  for (const std::string& known : d.known) out += fmt::format("  known    {}\n", known);
  for (const std::string& missing : d.missing) out += fmt::format("  missing  {}\n", missing);
  return out + fmt::format("  lever    {}\n", measure::lever_of(d.verdict));
}

std::string confirmation_text(const Confirmation& c, bool colour) {
  std::string out = painted(fmt::format("confirm {}", c.knob), Paint::heading, colour) + "\n";
  if (!c.problem.empty()) return out + fmt::format("  {}\n", c.problem);
  Table table(
      {{"growth of", Align::left}, {"before us"}, {"predicted us"}, {"measured us (95 %)"}});
  for (const Confirmation::Effect& e : c.effects) {
    table.add({e.what, microseconds(e.base_ns),
               e.predicted_ns ? fmt::format("{} to {}", microseconds((*e.predicted_ns)[0]),
                                            microseconds((*e.predicted_ns)[1]))
                              : "-",
               with_interval({e.changed_ns, e.changed_ci})});
  }
  out += table.text(colour);
  out += fmt::format("  predicted from {}\n", c.basis);
  for (const Confirmation::Probed& p : c.probed) {
    out +=
        fmt::format("  {} alone, {}: {:.2f} ± {:.2f} -> {:.2f} ± {:.2f} us ({:+.1f} %)\n",
                    c.probed_op, p.memory, p.base_us, (p.base_ci.hi - p.base_ci.lo) / 2,
                    p.changed_us, (p.changed_ci.hi - p.changed_ci.lo) / 2, 100 * (p.ratio() - 1));
  }
  for (const std::string& gap : c.gaps) out += fmt::format("  {}\n", gap);
  return out;
}

std::string closure_failure(const AttributionReport& r, bool colour) {
  std::string out;
  const measure::Closure& c = r.attribution.closure;
  if (!c.closes) {
    out += painted("The sum does not close. What does not:", Paint::bad, colour) + "\n";
    for (const measure::Term& term : c.terms) {
      out += fmt::format("  {:>12}  {}\n", signed_time_text(term.ns), term.name);
    }
  }
  return out + "No diagnosis: a gate failed.\n";
}

Json estimate_json(const Estimate& e) {
  return {{"ns", e.value}, {"ci_ns", {e.interval.lo, e.interval.hi}}};
}

Json closure_json(const measure::Closure& c) {
  Json terms = Json::array();
  for (const measure::Term& term : c.terms) terms.push_back({{"what", term.name}, {"ns", term.ns}});
  return {{"unwatched_ns", {c.unwatched_ns[0], c.unwatched_ns[1]}},
          {"growth", estimate_json(c.growth)},
          {"sum", estimate_json(c.sum)},
          {"residual", estimate_json(c.residual)},
          {"aa_floor_ns", c.aa_floor_ns},
          {"limit_ns", c.limit_ns},
          {"limit_why", c.limit_why},
          {"per_launch_ns", c.per_launch_ns},
          {"correction_ns", c.correction_ns},
          {"closes", c.closes},
          {"precise", c.precise},
          {"terms", terms}};
}

Json op_json(const measure::OpGrowth& op) {
  return {{"op", op.op},
          {"match", measure::match_name(op.match)},
          {"launches", {op.launches_lo, op.launches_hi}},
          {"ns", {op.lo_ns, op.hi_ns}},
          {"idle_before_ns", {op.gap_lo_ns, op.gap_hi_ns}},
          {"growth", estimate_json(op.growth)},
          {"idle_growth", estimate_json(op.gap_growth)},
          {"layer_growth_ns", op.layer_growth_ns}};
}

Json launch_json(const measure::LaunchGrowth& l) {
  return {{"layer", l.key.layer},
          {"op", l.key.op},
          {"ordinal", l.key.ordinal},
          {"match", measure::match_name(l.match)},
          {"kernels", {l.kernel_lo, l.kernel_hi}},
          {"ns", {l.lo_ns, l.hi_ns}},
          {"idle_before_ns", {l.gap_lo_ns, l.gap_hi_ns}},
          {"growth", estimate_json(l.growth)},
          {"idle_growth", estimate_json(l.gap_growth)}};
}

Json parts_json(const measure::Parts& p) {
  return {{"ns", p.ns},
          {"bytes_ns", p.bytes_ns},
          {"compute_ns", p.compute_ns ? Json(*p.compute_ns) : Json(nullptr)},
          {"exposed_ns", p.exposed_ns()}};
}

Json decomposition_json(const measure::Decomposition& d) {
  return {
      {"op", d.op},
      {"bytes", {d.bytes_lo, d.bytes_hi}},
      {"flops", {d.flops_lo, d.flops_hi}},
      {"read_from", measure::residence_name(d.residence)},
      {"arithmetic", d.arithmetic ? Json(measure::arithmetic_name(*d.arithmetic)) : Json(nullptr)},
      {"parts", {parts_json(d.lo), parts_json(d.hi)}}};
}

Json overlap_json(const measure::Overlap& o) {
  return {{"op", o.op}, {"under", o.under}, {"ns", {o.lo_ns, o.hi_ns}}};
}

Json cost_json(const measure::OpCost& cost) {
  return {{"op", cost.op}, {"bytes", cost.bytes}, {"flops", cost.flops}};
}

Json confirmation_json(const Confirmation& c) {
  Json effects = Json::array();
  for (const Confirmation::Effect& e : c.effects) {
    effects.push_back({{"what", e.what},
                       {"base_ns", e.base_ns},
                       {"changed_ns", e.changed_ns},
                       {"changed_ci_ns", {e.changed_ci.lo, e.changed_ci.hi}},
                       {"predicted_ns", e.predicted_ns ? Json(*e.predicted_ns) : Json(nullptr)}});
  }
  Json probed = Json::array();
  for (const Confirmation::Probed& p : c.probed) {
    probed.push_back({{"memory", p.memory},
                      {"us", {p.base_us, p.changed_us}},
                      {"base_ci_us", {p.base_ci.lo, p.base_ci.hi}},
                      {"changed_ci_us", {p.changed_ci.lo, p.changed_ci.hi}}});
  }
  return {{"probed_op", c.probed_op.empty() ? Json(nullptr) : Json(c.probed_op)},
          {"probed", probed},
          {"engine_ratio", c.probed_op.empty() ? Json(nullptr) : Json(c.engine_ratio)},
          {"knob", c.knob},
          {"basis", c.basis},
          {"effects", effects},
          {"gaps", c.gaps},
          {"problem", c.problem.empty() ? Json(nullptr) : Json(c.problem)}};
}

template <class T, class ToJson>
Json array_of(const std::vector<T>& values, const ToJson& to_json) {
  Json out = Json::array();
  for (const T& value : values) out.push_back(to_json(value));
  return out;
}

}  // namespace

bool AttributionReport::trusted() const {
  return std::all_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.pass; });
}

int64_t total_bytes(const std::vector<measure::OpCost>& costs) {
  int64_t bytes = 0;
  for (const measure::OpCost& cost : costs) bytes += cost.bytes;
  return bytes;
}

std::vector<Gate> AttributionReport::all_gates() const {
  std::vector<Gate> all = machine_gates;
  all.insert(all.end(), gates.begin(), gates.end());
  all.insert(all.end(), confirmation_gates.begin(), confirmation_gates.end());
  return all;
}

void withhold(Confirmation& confirmation, const std::string& why) {
  confirmation = {.knob = confirmation.knob,
                  .basis = confirmation.basis,
                  .effects = {},
                  .probed_op = {},
                  .probed = {},
                  .gaps = {},
                  .problem = "withheld: " + why};
}

void add_confirmation_gate(AttributionReport& report, Gate gate) {
  FATHOM_CHECK(report.confirmation_gates.size() + 1 == report.confirmations.size(),
               "a gate for each confirmation");
  if (!gate.pass) withhold(report.confirmations.back(), gate.why);
  report.confirmation_gates.push_back(std::move(gate));
}

bool grows(const measure::OpGrowth& op, const measure::Attribution& attribution) {
  return op.growth.interval.lo > 0 &&
         op.growth.value >= kGrowingShare * std::abs(attribution.closure.growth.value);
}

std::string refused_text(const AttributionReport& r) {
  return fmt::format("{} {} had lost or broken records and {} measured again.", r.refused_windows,
                     r.refused_windows == 1 ? "watched window" : "watched windows",
                     r.refused_windows == 1 ? "was" : "were");
}

std::string attribution_text(const AttributionReport& r, bool colour) {
  const measure::Attribution& a = r.attribution;
  std::string out = r.watermark.empty() ? "" : painted(r.watermark, Paint::bad, colour) + "\n";
  out += growth_table(r, colour);
  out += fmt::format(
      "A decode step{} at {} and {} tokens of cache; {} mirrored rounds (seed {}, stopped by {}), "
      "A/A floor {}, {} + {} every 1,000 tokens.\n",
      r.n_parallel == 1 ? "" : fmt::format(" of {} sequences", r.n_parallel), r.depths.front(),
      r.depths.back(), r.rounds, r.seed, r.stopped, time_text(a.closure.aa_floor_ns),
      time_text(a.line.intercept_ns), time_text(a.line.slope_ns * 1000));
  if (r.refused_windows > 0) out += refused_text(r) + "\n";
  if (a.overlap_hi_ns >= 1) {
    out += fmt::format("Kernels run side by side for {} and {} of it; that time is counted once.\n",
                       time_text(a.overlap_lo_ns), time_text(a.overlap_hi_ns));
  }
  out += kernels_table(r, colour);
  if (!r.decompositions.empty()) out += "\n" + parts_table(r, colour);
  out += peaks_text(r.peaks);
  out += evidence_text(r, colour);
  out += "\n";
  if (!r.trusted()) return out + closure_failure(r, colour);
  if (r.diagnoses.empty()) out += "Nothing grows.\n";
  for (const measure::Diagnosis& d : r.diagnoses) out += diagnosis_text(d, colour);
  for (const Confirmation& c : r.confirmations) out += "\n" + confirmation_text(c, colour);
  return out;
}

Json attribution_json(const AttributionReport& r) {
  const measure::Attribution& a = r.attribution;
  Json depths = Json::array();
  for (size_t i = 0; i < r.depths.size(); ++i) {
    depths.push_back({{"depth", r.depths[i]},
                      {"kv_fill", r.kv_fill[i]},
                      {"kv_bytes", r.kv_bytes[i]},
                      {"steps", r.block_steps[i]},
                      {"ns", a.untraced_ns[i]},
                      {"ci_ns", {a.untraced_ci[i].lo, a.untraced_ci[i].hi}},
                      {"off_the_line_ns", a.line.residual_ns[i]}});
  }
  const auto optional = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  Json out{{"model", r.model},
           {"backend", r.backend},
           {"device", r.device},
           {"threads", r.threads},
           {"n_parallel", r.n_parallel},
           {"kv_type", r.kv_type},
           {"rounds", r.rounds},
           {"stopped", r.stopped},
           {"seed", r.seed},
           {"depths", depths},
           {"line", {{"intercept_ns", a.line.intercept_ns}, {"slope_ns", a.line.slope_ns}}},
           {"closure", closure_json(a.closure)},
           {"aa", {estimate_json(a.aa[0]), estimate_json(a.aa[1])}},
           {"overhead", {a.overhead[0], a.overhead[1]}},
           {"clock_drift", a.clock_drift < 0 ? Json(nullptr) : Json(a.clock_drift)},
           {"idle", {{"ns", {a.gaps_lo_ns, a.gaps_hi_ns}}, {"growth", estimate_json(a.gaps)}}},
           {"overlap_ns", {a.overlap_lo_ns, a.overlap_hi_ns}},
           {"ops", array_of(a.ops, op_json)},
           {"launches", array_of(a.launches, launch_json)},
           {"peaks",
            {{"memory_gbps", r.peaks.memory_gbps},
             {"cache_gbps", optional(r.peaks.cache_gbps)},
             {"cache_bytes", r.peaks.cache_bytes},
             {"gflops", optional(r.peaks.gflops)},
             {"f16_tensor_gflops", optional(r.peaks.f16_tensor_gflops)},
             {"int8_tensor_gops", optional(r.peaks.int8_tensor_gops)}}},
           {"kv_token_bytes", r.kv_token_bytes},
           {"costs", {array_of(r.costs_lo, cost_json), array_of(r.costs_hi, cost_json)}},
           {"decompositions", array_of(r.decompositions, decomposition_json)},
           {"evidence", evidence_json(r)},
           {"missing_evidence", missing_evidence(r)},
           {"overlaps", array_of(r.overlaps, overlap_json)},
           {"overlap_sentences", overlap_sentences(r)},
           {"eager_ns", r.eager ? Json{r.eager->ns[0], r.eager->ns[1]} : Json(nullptr)}};
  out["diagnoses"] = array_of(r.diagnoses, [](const measure::Diagnosis& d) {
    return Json{{"op", d.op},
                {"verdict", measure::bottleneck_name(d.verdict)},
                {"known", d.known},
                {"missing", d.missing},
                {"lever", measure::lever_of(d.verdict)}};
  });
  out["confirmations"] = array_of(r.confirmations, confirmation_json);
  return out;
}

std::vector<TraceTrack> attribution_tracks(const measure::Observation& observation,
                                           const std::vector<int64_t>& depths) {
  std::vector<TraceTrack> tracks;
  for (size_t i : {size_t{0}, size_t{1}}) {
    TraceTrack& track = tracks.emplace_back();
    track.name = fmt::format("step at depth {}", i == 0 ? depths.front() : depths.back());
    for (const TraceRecord& record : (i == 0 ? observation.lo() : observation.hi()).shown.records) {
      TraceSlice slice{record.op, record.start_ns, record.end_ns, {{"kernel", record.kernel}}};
      if (record.layer >= 0) slice.notes.emplace_back("layer", fmt::format("{}", record.layer));
      if (record.grid[0] > 0) {
        slice.notes.emplace_back("grid", fmt::format("{}", fmt::join(record.grid, " x ")));
        slice.notes.emplace_back("block", fmt::format("{}", fmt::join(record.block, " x ")));
      }
      track.slices.push_back(std::move(slice));
    }
  }
  return tracks;
}

}  // namespace fathom::report

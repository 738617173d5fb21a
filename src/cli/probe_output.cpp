// SPDX-License-Identifier: Apache-2.0
// Tables of sizes and the freedom map; the same as JSON; the ceiling's gate.
#include "cli/probe_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/ceiling.hpp"
#include "cli/probe_figures.hpp"
#include "cli/terminal.hpp"
#include "report/kernel_name.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

using measure::BitVerdict;
using measure::ProbeMemory;
using report::Align;
using report::format_figure;

std::string ratio_text(const std::optional<ProbeRatio>& ratio) {
  if (!ratio) return "";
  return fmt::format("{:.3f} ({:.3f}..{:.3f})", ratio->value, ratio->ci.lo, ratio->ci.hi);
}

std::string kernels_text(const std::vector<KernelLaunch>& kernels) {
  std::string out;
  for (const KernelLaunch& k : kernels) {
    out +=
        fmt::format("{}{}x{}x{} of {} threads, {} registers, {:.0f} % occupancy, {:.2f} waves",
                    out.empty() ? "" : "; ", k.grid[0], k.grid[1], k.grid[2],
                    k.block[0] * k.block[1] * k.block[2], k.registers, 100 * k.occupancy, k.waves);
  }
  return out;
}

// The kernels of a variant's call apart, hot and cold.
std::string apart_text(const SizeResult& r, int variant) {
  std::string out;
  for (const measure::CallTimes& call : r.calls) {
    if (call.variant != variant || call.kernels.size() < 2) continue;
    out += fmt::format("  {}:", measure::probe_memory_name(call.memory));
    for (size_t i = 0; i < call.kernels.size(); ++i) {
      out += fmt::format("{} {} {:.2f} us", i > 0 ? "," : "",
                         report::short_kernel_name(call.kernels[i].kernel),
                         measure::median(call.kernels[i].us));
    }
    out += "\n";
  }
  return out;
}

std::string class_text(const BitVerdict& v) {
  std::string out = measure::bit_class_name(v.bit_class);
  if (!v.why.empty()) return out + ": " + v.why;
  if (v.difference.n_different > 0) {
    out += fmt::format(", {:.1e} differ, {:.0f} ulp", v.difference.share(), v.difference.max_ulp);
  }
  return out;
}

std::string size_table(const ProbeCommand& c, const SizeResult& r) {
  std::vector<report::Table::Column> columns{{"variant", Align::left}, {"bits", Align::left}};
  for (const ProbeMemory memory : c.memories) {
    if (!r.times) break;
    const std::string name = measure::probe_memory_name(memory);
    columns.push_back({name + " us"});
    columns.push_back({"95 %"});
    columns.push_back({"GB/s"});
    columns.push_back({memory == ProbeMemory::cold ? "% of memory" : "% of cache"});
    columns.push_back({"over the first"});
  }
  report::Table table(columns);
  for (size_t i = 0; i < c.set.variants.size(); ++i) {
    std::vector<std::string> cells{c.set.variants[i].name, class_text(r.verdicts[i])};
    for (const ProbeMemory memory : c.memories) {
      if (!r.times) break;
      const int variant = static_cast<int>(i);
      const std::optional<ProbeFigures> f = figures_of(*r.times, variant, memory, c.flags.seed);
      cells.push_back(format_figure(f->us));
      cells.push_back(
          fmt::format("{}..{}", format_figure(f->us_ci.lo), format_figure(f->us_ci.hi)));
      cells.push_back(format_figure(f->gbps));
      cells.push_back(f->share ? fmt::format("{:.0f}", 100 * *f->share) : "");
      cells.push_back(
          ratio_text(ratio_of(r.times->us(variant, memory, i == 0), r.times->us(0, memory))));
    }
    table.add(cells);
  }
  return table.text(stdout_colour());
}

std::string size_text(const ProbeCommand& c, const SizeResult& r) {
  std::string out =
      fmt::format("{} of {}, {} weights, {} cache, batch {}, {} tokens", probed_op(c.flags),
                  r.input.shape.name, dtype_info(r.input.type).name, kv_format_name(r.input.cache),
                  r.input.size.batch, r.input.size.depth);
  if (!r.times) return out + "\n" + size_table(c, r);
  const measure::ProbeRotation& rotation = r.times->rotation;
  out += fmt::format(
      ": {} declared; cold: {} sets, {:.1f} caches between two visits{}; hot: {}\n",
      report::format_bytes(rotation.set_bytes), rotation.n_sets,
      static_cast<double>(rotation.distinct_bytes) / static_cast<double>(rotation.cache_bytes),
      rotation.is_cold() ? "" : " (WARM: fewer than 3)",
      rotation.is_hot() ? "fits half the cache" : "NOT HOT, more than half the cache");
  out += size_table(c, r);
  if (!c.is_sweep()) {
    for (size_t i = 0; i < r.times->kernels.size(); ++i) {
      if (r.times->kernels[i].empty()) continue;
      out += fmt::format("{}: {}\n", c.set.variants[i].name, kernels_text(r.times->kernels[i]));
      out += apart_text(r, static_cast<int>(i));
    }
  }
  return out;
}

// The variant one knob away from the base.
int changed_variant(const ProbeCommand& c, const measure::FreedomRow& row) {
  measure::Knobs wanted = c.set.variants.front().knobs;
  wanted[row.knob] = row.to;
  for (size_t i = 0; i < c.set.variants.size(); ++i) {
    if (c.set.variants[i].knobs == wanted) return static_cast<int>(i);
  }
  return -1;
}

// Of the deepest size of a batch, where growth shows most.
const SizeResult* deepest(const std::vector<SizeResult>& results, int batch) {
  const SizeResult* out = nullptr;
  for (const SizeResult& r : results) {
    if (r.input.size.batch == batch && r.times &&
        (!out || r.input.size.depth > out->input.size.depth))
      out = &r;
  }
  return out;
}

std::string freedom_class(const measure::FreedomRow& row) {
  switch (row.bit_class) {
    case measure::BitClass::free:
      return "B0 free";
    case measure::BitClass::fail:
      return "F: " + row.why;
    default:
      return fmt::format("{} tolerance", measure::bit_class_name(row.bit_class));
  }
}

std::string help_text(const std::optional<ProbeRatio>& ratio) {
  if (!ratio) return "";
  return ratio->ci.hi < 1 ? "helps" : ratio->ci.lo > 1 ? "hurts" : "no change seen";
}

std::string map_text(const ProbeCommand& c, const measure::FreedomMap& map,
                     const std::vector<SizeResult>& results) {
  std::vector<report::Table::Column> columns{{"knob", Align::left},
                                             {"change", Align::left},
                                             {"class", Align::left},
                                             {"pairs"},
                                             {"differ from"},
                                             {"share"},
                                             {"max |d|"},
                                             {"max ulp"},
                                             {"argmax flips"}};
  const int batch = c.timed.front().batch;
  const SizeResult* timed = deepest(results, batch);
  for (const ProbeMemory memory : c.memories) {
    if (timed) columns.push_back({fmt::format("{} time", measure::probe_memory_name(memory))});
    if (timed) columns.push_back({"", Align::left});
  }
  report::Table table(columns);
  for (const measure::FreedomRow& row : map.rows()) {
    const measure::BitDifference& d = row.difference;
    std::vector<std::string> cells{row.knob,
                                   row.from + " -> " + row.to,
                                   freedom_class(row),
                                   std::to_string(row.n_pairs),
                                   row.least_depth ? std::to_string(*row.least_depth) : "",
                                   d.n_different ? fmt::format("{:.1e}", d.share()) : "0",
                                   d.n_different ? fmt::format("{:.1e}", d.max_abs) : "0",
                                   fmt::format("{:.0f}", d.max_ulp),
                                   std::to_string(d.n_argmax_flips)};
    const int variant = changed_variant(c, row);
    for (const ProbeMemory memory : c.memories) {
      if (!timed) break;
      std::optional<ProbeRatio> ratio;
      if (variant >= 0) {
        ratio = ratio_of(timed->times->us(variant, memory), timed->times->us(0, memory));
      }
      cells.push_back(variant >= 0 ? ratio_text(ratio) : "not alone");
      cells.push_back(help_text(ratio));
    }
    table.add(cells);
  }
  std::string out = fmt::format(
      "freedom map of {}: {} variants from {}, the worst class over {} sizes and all settings of "
      "the other knobs\n",
      probed_op(c.flags), c.set.variants.size(), c.set.variants.front().name,
      c.formats.size() * c.classed.size());
  if (timed) {
    out += fmt::format("times: batch {}, {} tokens, over the base's\n", batch,
                       timed->input.size.depth);
  }
  return out + table.text(stdout_colour());
}

Json difference_json(const measure::BitDifference& d) {
  return {{"n_values", d.n_values},
          {"n_different", d.n_different},
          {"max_abs", std::isfinite(d.max_abs) ? Json(d.max_abs) : Json(nullptr)},
          {"max_ulp", d.max_ulp},
          {"mean_ulp", d.mean_ulp()},
          {"n_signed_zeros", d.n_signed_zeros},
          {"n_nan_payloads", d.n_nan_payloads},
          {"n_rows", d.n_rows},
          {"argmax_flips", d.n_argmax_flips}};
}

Json kernels_json(const std::vector<KernelLaunch>& kernels) {
  Json out = Json::array();
  for (const KernelLaunch& k : kernels) {
    out.push_back({{"kernel", k.kernel},
                   {"grid", k.grid},
                   {"block", k.block},
                   {"shared_bytes", k.shared_bytes},
                   {"local_bytes", k.local_bytes},
                   {"registers", k.registers},
                   {"blocks_per_sm", k.blocks_per_sm},
                   {"occupancy", k.occupancy},
                   {"waves", k.waves}});
  }
  return out;
}

Json ratio_json(const std::optional<ProbeRatio>& ratio) {
  if (!ratio) return nullptr;
  return {{"value", ratio->value}, {"ci", {ratio->ci.lo, ratio->ci.hi}}};
}

Json apart_json(const SizeResult& r, int variant, ProbeMemory memory, uint64_t seed) {
  for (const measure::CallTimes& call : r.calls) {
    if (call.variant != variant || call.memory != memory) continue;
    Json out = Json::array();
    for (const measure::KernelTimes& kernel : call.kernels) {
      const measure::Interval ci = measure::bootstrap_median(kernel.us, seed);
      out.push_back({{"kernel", kernel.kernel},
                     {"us", measure::median(kernel.us)},
                     {"ci", {ci.lo, ci.hi}},
                     {"values_us", kernel.us}});
    }
    return out;
  }
  return nullptr;
}

Json variant_json(const ProbeCommand& c, const SizeResult& r, size_t i) {
  const BitVerdict& v = r.verdicts[i];
  Json out{{"name", c.set.variants[i].name},
           {"knobs", c.set.variants[i].knobs},
           {"class", measure::bit_class_name(v.bit_class)},
           {"why", v.why.empty() ? Json(nullptr) : Json(v.why)},
           {"difference", difference_json(v.difference)},
           {"kernels", nullptr},
           {"hot", nullptr},
           {"cold", nullptr}};
  if (!r.times) return out;
  if (!r.times->kernels[i].empty()) out["kernels"] = kernels_json(r.times->kernels[i]);
  const int variant = static_cast<int>(i);
  for (const ProbeMemory memory : c.memories) {
    const std::optional<ProbeFigures> f = figures_of(*r.times, variant, memory, c.flags.seed);
    out[measure::probe_memory_name(memory)] = {
        {"us", f->us},
        {"ci", {f->us_ci.lo, f->us_ci.hi}},
        {"gbps", f->gbps},
        {"peak_gbps", f->peak_gbps ? Json(*f->peak_gbps) : Json(nullptr)},
        {"pct_of_peak", f->share ? Json(100 * *f->share) : Json(nullptr)},
        {"over_first",
         ratio_json(ratio_of(r.times->us(variant, memory, i == 0), r.times->us(0, memory)))},
        {"kernels", apart_json(r, variant, memory, c.flags.seed)}};
  }
  return out;
}

Json size_json(const ProbeCommand& c, const SizeResult& r) {
  Json out{{"batch", r.input.size.batch},
           {"depth", r.input.size.depth},
           {"type", dtype_info(r.input.type).name},
           {"cache", kv_format_name(r.input.cache)},
           {"variants", Json::array()}};
  for (size_t i = 0; i < c.set.variants.size(); ++i)
    out["variants"].push_back(variant_json(c, r, i));
  if (!r.times) return out;
  const measure::ProbeRotation& rotation = r.times->rotation;
  out["declared"] = {{"weight_bytes", r.times->cost.weight_bytes},
                     {"kv_bytes", r.times->cost.kv_bytes},
                     {"act_read_bytes", r.times->cost.act_read_bytes},
                     {"act_written_bytes", r.times->cost.act_written_bytes},
                     {"flops_useful", r.times->cost.flops_useful}};
  out["rotation"] = {{"n_sets", rotation.n_sets},
                     {"set_bytes", rotation.set_bytes},
                     {"distinct_bytes", rotation.distinct_bytes},
                     {"cache_bytes", rotation.cache_bytes},
                     {"cold", rotation.is_cold()},
                     {"hot", rotation.is_hot()}};
  out["order"] = r.times->rounds.order;
  out["arms"] = r.times->rounds.arms;
  return out;
}

Json map_json(const ProbeCommand& c, const measure::FreedomMap& map,
              const std::vector<SizeResult>& results) {
  Json out = Json::array();
  for (const measure::FreedomRow& row : map.rows()) {
    Json json{{"knob", row.knob},
              {"from", row.from},
              {"to", row.to},
              {"class", measure::bit_class_name(row.bit_class)},
              {"why", row.why.empty() ? Json(nullptr) : Json(row.why)},
              {"n_pairs", row.n_pairs},
              {"least_depth", row.least_depth ? Json(*row.least_depth) : Json(nullptr)},
              {"difference", difference_json(row.difference)},
              {"times", Json::array()}};
    const int variant = changed_variant(c, row);
    for (const SizeResult& r : results) {
      if (!r.times || variant < 0) continue;
      for (const ProbeMemory memory : c.memories) {
        json["times"].push_back({{"batch", r.input.size.batch},
                                 {"depth", r.input.size.depth},
                                 {"memory", measure::probe_memory_name(memory)},
                                 {"ratio", ratio_json(ratio_of(r.times->us(variant, memory),
                                                               r.times->us(0, memory)))}});
      }
    }
    out.push_back(json);
  }
  return out;
}

}  // namespace

std::string probe_text(const ProbeCommand& c, const ProbeResults& results,
                       const std::optional<measure::FreedomMap>& map) {
  std::string text;
  for (const SizeResult& r : results) text += size_text(c, r) + "\n";
  if (map) text += map_text(c, *map, results);
  return text;
}

Json probe_summary(const ProbeCommand& c, const ProbeResults& results,
                   const std::optional<measure::FreedomMap>& map) {
  Json sizes = Json::array();
  for (const SizeResult& r : results) sizes.push_back(size_json(c, r));
  return {{"op", probed_op(c.flags)},
          {"backend", c.backend.name},
          {"device", c.backend.device->info().name},
          {"shape", c.formats.front().shape.name},
          {"page_tokens", c.flags.page_tokens},
          {"seed", c.flags.seed},
          {"n_rounds", c.flags.n_rounds},
          {"draws", measure::kProbeDraws},
          {"n_classed", c.formats.size() * c.classed.size()},
          {"sizes", sizes},
          {"freedom_map", map ? map_json(c, *map, results) : Json(nullptr)}};
}

Json probe_samples(const std::vector<SizeResult>& results) {
  Json out = Json::array();
  for (const SizeResult& r : results) {
    if (!r.times) continue;
    const measure::Rounds& rounds = r.times->rounds;
    for (size_t arm = 0; arm < rounds.arms.size(); ++arm) {
      const bool is_ceiling = arm >= r.times->arms.size();
      for (size_t round = 0; round < rounds.values[arm].size(); ++round) {
        const double value = rounds.values[arm][round];
        Json sample{{"arm", rounds.arms[arm]},
                    {"depth", r.input.size.depth},
                    {"batch", r.input.size.batch},
                    {"type", dtype_info(r.input.type).name},
                    {"cache", kv_format_name(r.input.cache)},
                    {"round", round}};
        // The difference of two noisy times may be below zero: kept, under a name of its own.
        if (is_ceiling) {
          sample["gbps"] = value;
        } else {
          sample["launch_ns"] = 1e3 * value;
        }
        out.push_back(sample);
      }
    }
  }
  return out;
}

// The worst share of the memory's peak among cold times; a small set's bytes may hide in a launch.
std::vector<report::Gate> probe_gates(const ProbeCommand& c,
                                      const std::vector<SizeResult>& results) {
  std::vector<report::Gate> gates;
  report::Gate ceiling{.id = "ceiling",
                       .pass = true,
                       .value = {},
                       .limit = kCeilingRatio,
                       .why = "no cold times beside a read ceiling"};
  std::vector<double> peaks;
  for (const SizeResult& r : results) {
    if (!r.times) continue;
    peaks.insert(peaks.end(), r.times->memory_gbps.begin(), r.times->memory_gbps.end());
    for (size_t i = 0; i < c.set.variants.size(); ++i) {
      const std::optional<ProbeFigures> f =
          figures_of(*r.times, static_cast<int>(i), ProbeMemory::cold, c.flags.seed);
      if (!f || !f->share || (ceiling.value && *ceiling.value >= *f->share)) continue;
      ceiling.value = *f->share;
      ceiling.why = fmt::format(
          "batch {}, {} tokens, {}: cold, the declared bytes come at {:.3f} of the read ceiling",
          r.input.size.batch, r.input.size.depth, c.set.variants[i].name, *f->share);
    }
  }
  ceiling.pass = !ceiling.value || *ceiling.value <= kCeilingRatio;
  gates.push_back(ceiling);
  const std::string device = c.backend.device->info().name;
  if (!peaks.empty() && least_ceiling_gbps(device) > 0)
    gates.push_back(least_ceiling_gate(device, measure::median(peaks)));
  return gates;
}

}  // namespace fathom::cli

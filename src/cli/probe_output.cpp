// SPDX-License-Identifier: Apache-2.0
// Sizes, the freedom map and samples as JSON.
#include "cli/probe_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/probe_figures.hpp"

namespace fathom::cli {
namespace {

using measure::BitVerdict;
using measure::ProbeMemory;

// The variant one knob away from the base.
int changed_variant(const ProbeCommand& c, const measure::FreedomRow& row) {
  measure::Knobs wanted = c.set.variants.front().knobs;
  wanted[row.knob] = row.to;
  for (size_t i = 0; i < c.set.variants.size(); ++i) {
    if (c.set.variants[i].knobs == wanted) return static_cast<int>(i);
  }
  return -1;
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
      const auto flags = measure::outlier_flags(rounds.values[arm]);
      for (size_t round = 0; round < rounds.values[arm].size(); ++round) {
        const double value = rounds.values[arm][round];
        Json sample{{"arm", rounds.arms[arm]},
                    {"depth", r.input.size.depth},
                    {"batch", r.input.size.batch},
                    {"type", dtype_info(r.input.type).name},
                    {"cache", kv_format_name(r.input.cache)},
                    {"round", round},
                    {"flags", flags[round]}};
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

}  // namespace fathom::cli

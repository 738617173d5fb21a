// SPDX-License-Identifier: Apache-2.0
// The knobs as variants of probe, and what its rounds say of each.
#include "cli/attribute_confirm.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "cli/arguments.hpp"
#include "cli/interrupt.hpp"
#include "cli/probe_figures.hpp"
#include "cli/probe_variants.hpp"
#include "cli/terminal.hpp"
#include "measure/verbatim.hpp"

namespace fathom::cli {
namespace {

using measure::ProbeMemory;
using report::Confirmation;

constexpr int kProbeRounds = 12;

KvFormat format_of(KvType type) {
  for (int i = 0; i < kKvFormats; ++i) {
    if (std::string(kv_format_name(static_cast<KvFormat>(i))) == kv_type_name(type))
      return static_cast<KvFormat>(i);
  }
  FATHOM_CHECK(false, "a cache type without a format");
  return {};
}

measure::ProbeInput input_of(const ConfirmSetting& setting, KvType cache) {
  const ModelInfo& info = setting.info;
  measure::ProbeInput in;
  in.shape = {info.name,    info.d_model,    info.d_ff,    info.vocab_size,
              info.n_heads, info.n_kv_heads, info.head_dim};
  in.cache = format_of(cache);
  in.page_tokens = setting.page_tokens;
  in.n_ctx = info.n_ctx;
  in.max_rows = info.max_rows;
  in.size = {setting.n_parallel, setting.kv_tokens[1]};
  return in;
}

// One op over one type of cache, some variants beside each other.
class KnobRounds {
 public:
  KnobRounds(const std::string& op, const std::vector<std::string>& variants, KvType cache,
             const Backend& backend, const ConfirmSetting& setting, const measure::Machine& machine,
             const CommonFlags& common)
      : seed_(setting.seed),
        set_(named_variants(backend, op, variants, common)),
        stream_(make_stream(*backend.device)) {
    const measure::ProbeDevice device{backend, *set_.variants.front().pool, stream_.get()};
    measure::ProbeOptions options;
    options.n_rounds = kProbeRounds;
    options.seed = setting.seed;
    options.cache_bytes = probe_cache_bytes(backend, machine);
    options.budget_bytes = probe_budget_bytes(backend);
    options.cancel = &interrupted();
    times_ = measure::probe_times(op, input_of(setting, cache), set_.variants, device, {}, options);
  }
  ProbeFigures figures(int variant, ProbeMemory memory) const {
    return *figures_of(times_, variant, memory, seed_);
  }
  const std::vector<KernelLaunch>& kernels(int variant) const {
    return times_.kernels[static_cast<size_t>(variant)];
  }
  const measure::ProbedCall& nodes(int variant) const {
    return times_.nodes[static_cast<size_t>(variant)];
  }

 private:
  uint64_t seed_;
  ProbeSet set_;
  Stream stream_;
  measure::ProbeTimes times_;
};

KnobProbe compared(const KnobRounds& before, int variant_before, const KnobRounds& after,
                   int variant_after) {
  KnobProbe out;
  for (const ProbeMemory memory : {ProbeMemory::hot, ProbeMemory::cold}) {
    const ProbeFigures a = before.figures(variant_before, memory),
                       b = after.figures(variant_after, memory);
    out.probed.push_back({.memory = measure::probe_memory_name(memory),
                          .base_us = a.us,
                          .changed_us = b.us,
                          .base_ci = a.us_ci,
                          .changed_ci = b.us_ci});
  }
  out.kernels_before = before.kernels(variant_before);
  out.kernels_after = after.kernels(variant_after);
  out.nodes_before = before.nodes(variant_before);
  out.nodes_after = after.nodes(variant_after);
  return out;
}

double waves_of(const std::vector<KernelLaunch>& kernels) {
  return kernels.empty() ? 0 : kernels.front().waves;
}

}  // namespace

report::Gate verbatim_gate(const char* id, const std::string& what,
                           const std::vector<KernelLaunch>& engine,
                           const measure::ProbedCall& probed) {
  report::Gate gate{.id = id, .pass = true, .value = {}, .limit = {}, .why = ""};
  if (const auto difference = measure::verbatim_difference(engine, probed)) {
    gate.pass = false;
    gate.why = fmt::format("{}: the probe's kernel is not the engine's: {}", what, *difference);
    return gate;
  }
  const measure::ComparedBytes bytes = measure::compared_bytes(probed);
  gate.why = fmt::format(
      "{}: {} probed kernels are the engine's captured nodes by symbol, hash of the code, grid, "
      "block, shared memory and {} bytes of arguments; {} bytes more are addresses in both, {} "
      "padding",
      what, engine.size(), bytes.values, bytes.addresses, bytes.padding);
  return gate;
}

LaunchState KnobProbe::launches(const ConfirmSetting& setting) const {
  return {.kv_tokens = {setting.kv_tokens[0], setting.kv_tokens[1]},
          .waves_before = waves_of(kernels_before),
          .waves_after = waves_of(kernels_after)};
}

std::vector<KnobProbe> probe_knobs(const std::vector<Knob>& knobs, const Backend& backend,
                                   const ConfirmSetting& setting, const measure::Machine& machine,
                                   const CommonFlags& common) {
  if (knobs.empty()) return {};
  const Knob& first = knobs.front();
  std::vector<std::string> variants{first.variant_before};
  for (const Knob& knob : knobs) {
    FATHOM_CHECK(knob.op == first.op, "knobs of one op, as one variant runs");
    if (std::ranges::find(variants, knob.variant_after) == variants.end()) {
      variants.push_back(knob.variant_after);
    }
  }
  const KnobRounds together(first.op, variants, first.cache_before, backend, setting, machine,
                            common);
  std::vector<KnobProbe> out;
  for (const Knob& knob : knobs) {
    const auto at = std::ranges::find(variants, knob.variant_after);
    const int variant = static_cast<int>(at - variants.begin());
    if (knob.cache_after == knob.cache_before) {
      out.push_back(compared(together, 0, together, variant));
    } else {
      const KnobRounds apart(knob.op, {knob.variant_after}, knob.cache_after, backend, setting,
                             machine, common);
      out.push_back(compared(together, 0, apart, 0));
    }
  }
  return out;
}

}  // namespace fathom::cli

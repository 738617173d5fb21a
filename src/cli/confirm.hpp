// SPDX-License-Identifier: Apache-2.0
// Knobs for `attribute --confirm`: one thing about the engine changed, and what the decomposition
// predicts of it. Of an engine: threads, cache-type; of a device with variants of its ops also
// another variant, or a knob of the one that runs (confirm_variant.cpp).
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "fathom/fathom.hpp"
#include "kernels/op_variant.hpp"
#include "report/attribution_report.hpp"

namespace fathom::cli {

// What is known of the op's launches before and after, without any time.
struct LaunchState {
  int64_t kv_tokens[2] = {0, 0};             // of a sequence, at each anchor
  double waves_before = 0, waves_after = 0;  // of its first kernel; 0 = it is not made of kernels
};

struct Knob {
  std::string text;   // "threads 2 -> 1"
  std::string basis;  // what the prediction rests on
  std::function<void(OpenOptions&)> apply;
  // By how much the exposed part of an op's growth may change, least and most: factors.
  std::function<std::array<double, 2>(const LaunchState&)> exposed_factors;
  bool every_op = false;  // not `op` alone
  // What is probed: an op's variants by the names that probe has for them, over caches of a type.
  std::string op, variant_before, variant_after;
  KvType cache_before, cache_after;
};

// "threads=1", "cache-type=q8_0", "variant=production", "splits=64,staging=8". Throws Error{usage}
// that lists the knobs, or says that the value changes nothing.
Knob parse_knob(const std::string& text, const OpenOptions& base, const ModelInfo& info,
                const Backend& backend);

// The knob of another variant: the whole name, or "" for production's kernels.
Knob variant_knob(const std::string& name, const OpenOptions& base, const ModelInfo& info,
                  const Backend& backend);
// Knobs of the variant that runs: "warps=8,window=256".
Knob variant_knobs_knob(const std::string& knobs, const OpenOptions& base, const ModelInfo& info,
                        const Backend& backend);

// How often in a row the slowest warp of the seed's attention waits for loads, times the waves in
// which the warps come: each batch of staged rows is a wait, and each row's values one more unless
// they are staged too. 0 for variants that have not its knobs.
double chained_waits(const std::vector<OpVariant::Knob>& knobs, int64_t kv_tokens, double waves);

// REQUIRES: both reports of the same rounds; `changed` has its own costs and peaks.
report::Confirmation confirmation_of(const Knob& knob, const report::AttributionReport& base,
                                     const report::AttributionReport& changed,
                                     const LaunchState& launches);
// What the two ways to measure the op say beside each other, and what the rest of the step did:
// sentences that name each gap. To be called once the probe's times are in.
void name_gaps(report::Confirmation& confirmation, const report::AttributionReport& base,
               const report::AttributionReport& changed);

}  // namespace fathom::cli

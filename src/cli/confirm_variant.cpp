// SPDX-License-Identifier: Apache-2.0
// Knobs that are another variant of an op. Between variants of the seed's attention the exposed
// time follows the number of loads that a warp waits for one after the other; nothing is said of it
// between kernels of different making.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "cli/confirm.hpp"
#include "engine/varied_backend.hpp"

namespace fathom::cli {
namespace {

constexpr const char* kProduction = "production";

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of the warp with the most rows of a split.
int64_t longest_share(int64_t split_rows, int64_t warps, int64_t window) {
  const int64_t part = window / warps;
  return split_rows / window * part + std::min(split_rows % window, part);
}

// Of the growth between the anchors.
std::array<double, 2> chain_factors(const std::vector<OpVariant::Knob>& before,
                                    const std::vector<OpVariant::Knob>& after,
                                    const LaunchState& launches) {
  const auto growth = [&](const std::vector<OpVariant::Knob>& knobs, double waves) {
    return chained_waits(knobs, launches.kv_tokens[1], waves) -
           chained_waits(knobs, launches.kv_tokens[0], waves);
  };
  const double from = growth(before, launches.waves_before);
  const double factor = from > 0 ? growth(after, launches.waves_after) / from : 1;
  return {std::min(1.0, factor), std::max(1.0, factor)};
}

bool are_seeds(const OpVariant& a, const OpVariant& b) {
  return chained_waits(a.knobs, 1, 1) > 0 && chained_waits(b.knobs, 1, 1) > 0;
}

}  // namespace

double chained_waits(const std::vector<OpVariant::Knob>& knobs, int64_t kv_tokens, double waves) {
  const auto value = [&](const char* name) -> int64_t {
    const auto knob = std::ranges::find(knobs, name, &OpVariant::Knob::name);
    return knob == knobs.end() ? -1 : knob->value;
  };
  const int64_t splits = value("splits"), staging = value("staging"), values = value("values"),
                warps = value("warps"), window = value("window");
  if (splits < 1 || staging < 1 || values < 0 || warps < 1 || window < warps) return 0;
  const int64_t rows = longest_share(ceil_div(kv_tokens, splits), warps, window);
  const int64_t waits = ceil_div(rows, staging) + (values ? 0 : rows);
  return static_cast<double>(waits) * std::max(1.0, waves);
}

Knob variant_knob(const std::string& name, const OpenOptions& base, const ModelInfo& info,
                  const Backend& backend) {
  const std::string wanted = name == kProduction ? "" : name;
  const OpVariant* const before =
      base.variant.empty() ? nullptr : &engine::find_variant(backend, base.variant);
  const OpVariant* const after = wanted.empty() ? nullptr : &engine::find_variant(backend, wanted);
  if (before == after) {
    fail(ErrorCode::usage, "--confirm '{}': the engine runs {} already", name,
         before ? before->name : kProduction);
  }
  if (before && after && before->op != after->op) {
    fail(ErrorCode::usage, "--confirm '{}': a variant of {}, the engine runs one of {}", name,
         after->op, before->op);
  }
  Knob knob;
  knob.op = before ? before->op : after->op;
  knob.variant_before = before ? before->name : kProduction;
  knob.variant_after = after ? after->name : kProduction;
  knob.cache_before = knob.cache_after = info.kv_type;
  knob.text = fmt::format("{} {} -> {}", knob.op, knob.variant_before, knob.variant_after);
  knob.apply = [runs = after ? after->name : ""](OpenOptions& options) { options.variant = runs; };
  if (before && after && are_seeds(*before, *after)) {
    knob.basis =
        "the same bytes at the peak of this run; the exposed rest between unchanged and in "
        "proportion to the loads that the slowest warp waits for one after the other (a wait for "
        "each batch of staged rows, one more for each row whose values are not staged, times the "
        "waves beyond one), as if it were nothing but these waits";
    knob.exposed_factors = [from = before->knobs, to = after->knobs](const LaunchState& launches) {
      return chain_factors(from, to, launches);
    };
  } else {
    knob.basis =
        "the same bytes at the peak of this run; of the exposed rest, which belongs to the kernel, "
        "nothing to all";
    knob.exposed_factors = [](const LaunchState&) { return std::array{0.0, 1.0}; };
  }
  return knob;
}

Knob variant_knobs_knob(const std::string& knobs, const OpenOptions& base, const ModelInfo& info,
                        const Backend& backend) {
  if (base.variant.empty()) {
    fail(ErrorCode::usage,
         "--confirm '{}': production's kernels have no knobs; give it a --variant that has, or "
         "cache-type=VALUE or variant=NAME",
         knobs);
  }
  const OpVariant& before = engine::find_variant(backend, base.variant);
  std::string name = before.name.substr(0, before.name.find(':'));
  char separator = ':';
  const std::string words = "," + knobs;
  for (const OpVariant::Knob& knob : before.knobs) {
    if (words.find(fmt::format(",{}=", knob.name)) != std::string::npos) continue;
    name += fmt::format("{}{}={}", separator, knob.name, knob.value);
    separator = ',';
  }
  return variant_knob(fmt::format("{}{}{}", name, separator, knobs), base, info, backend);
}

}  // namespace fathom::cli

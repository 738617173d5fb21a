// SPDX-License-Identifier: Apache-2.0
// The knobs, the prediction from bytes, arithmetic and the exposed rest, and the comparison.
#include "cli/confirm.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "cli/arguments.hpp"
#include "engine/varied_backend.hpp"
#include "report/time_text.hpp"

namespace fathom::cli {
namespace {

using measure::Decomposition;
using report::Confirmation;
using report::signed_time_text;

Knob threads_knob(const std::string& value, const ModelInfo& info) {
  const std::optional<uint64_t> wanted = parse_uint64(value);
  if (!wanted || *wanted > 1024)
    fail(ErrorCode::usage, "--confirm threads={}: not a number", value);
  const int threads = ThreadPool::choose_threads(static_cast<int64_t>(*wanted));
  if (threads == info.threads) {
    fail(ErrorCode::usage, "--confirm threads={}: the engine has as many already", threads);
  }
  const double factor = static_cast<double>(info.threads) / threads;
  return {
      .text = fmt::format("threads {} -> {}", info.threads, threads),
      .basis = fmt::format("bytes and arithmetic at the peaks that {} threads gave between the "
                           "same rounds; the exposed rest between unchanged and {:.2f} times, as "
                           "if all of it were dealt to threads",
                           threads, factor),
      .apply = [threads](OpenOptions& options) { options.threads = threads; },
      .exposed_factors =
          [factor](const LaunchState&) {
            return std::array{std::min(1.0, factor), std::max(1.0, factor)};
          },
      .every_op = true,
      .op = "attn",
      .variant_before = fmt::format("threads={}", info.threads),
      .variant_after = fmt::format("threads={}", threads),
      .cache_before = info.kv_type,
      .cache_after = info.kv_type};
}

Knob cache_type_knob(const std::string& value, const ModelInfo& info) {
  const KvType type = parse_kv_type(value);
  if (type == info.kv_type) {
    fail(ErrorCode::usage, "--confirm cache-type={}: the cache has this type already", value);
  }
  return {.text = fmt::format("cache type {} -> {}", kv_type_name(info.kv_type), value),
          .basis =
              "the declared bytes of the other type at the peak of this run; arithmetic and "
              "the exposed rest unchanged",
          .apply = [type](OpenOptions& options) { options.kv_type = type; },
          .exposed_factors =
              [](const LaunchState&) {
                return std::array{1.0, 1.0};
              },
          .every_op = true,
          .op = "attn",
          .variant_before = "production",
          .variant_after = "production",
          .cache_before = info.kv_type,
          .cache_after = type};
}

const Decomposition* find(const std::vector<Decomposition>& all, const std::string& op) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Decomposition& d) { return d.op == op; });
  return found == all.end() ? nullptr : &*found;
}

// The floor is that of the changed engine's bytes, arithmetic and peaks; its times are not used.
std::array<double, 2> predicted_growth(const Knob& knob, const Decomposition& before,
                                       const Decomposition& after, const LaunchState& launches) {
  const std::array<double, 2> factors = knob.exposed_factors(launches);
  const double exposed = before.exposed_growth_ns();
  std::array<double, 2> out{after.floor_growth_ns() + factors[0] * exposed,
                            after.floor_growth_ns() + factors[1] * exposed};
  std::sort(out.begin(), out.end());
  return out;
}

// How much of what the knob could do to the exposed time it did; nothing where it could do nothing,
// or less than the measurement can tell.
std::optional<std::string> share_text(const std::string& op, double unchanged_ns,
                                      const Confirmation::Effect& e) {
  const auto& [least, most] = *e.predicted_ns;
  const double could =
      unchanged_ns - least > most - unchanged_ns ? least - unchanged_ns : most - unchanged_ns;
  const double did = e.changed_ns - unchanged_ns;
  if (std::abs(could) <= e.changed_ci.hi - e.changed_ci.lo) return std::nullopt;
  const std::string came =
      fmt::format("{}: this could change its growth by {} at most, and {} came", op,
                  signed_time_text(could), signed_time_text(did));
  if (did / could < 0) return came + ": the other way, so something else came with it";
  return fmt::format("{} ({:.0f} %)", came, 100 * did / could);
}

const measure::OpGrowth* find(const std::vector<measure::OpGrowth>& ops, const std::string& op) {
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const measure::OpGrowth& o) { return o.op == op; });
  return found == ops.end() ? nullptr : &*found;
}

std::string percent(double ratio) {
  return fmt::format("{}{:.1f} %", ratio < 1 ? "−" : "+", 100 * std::abs(ratio - 1));
}

constexpr double kSameRatio = 0.02;  // ratios this near are called the same

// Why a probe and the engine do not say the same.
std::string probe_gap(const Confirmation& c) {
  double least = c.engine_ratio, most = c.engine_ratio;
  bool first = true;
  std::string alone;
  for (const Confirmation::Probed& p : c.probed) {
    least = first ? p.ratio() : std::min(least, p.ratio());
    most = first ? p.ratio() : std::max(most, p.ratio());
    first = false;
    alone += fmt::format("{}{} alone {}", alone.empty() ? "" : ", ", p.memory, percent(p.ratio()));
  }
  const char* why =
      c.engine_ratio < least - kSameRatio
          ? "more than alone: in the engine it meets operands and a cache that other ops left, and "
            "their launches before and after it"
      : c.engine_ratio > most + kSameRatio
          ? "less than alone: other ops' traffic in the cache and the launches before and after "
            "take part of it"
      : most - least > kSameRatio
          ? "the gap between the probes is the cache's temperature, and the engine lies within it"
          : "they agree";
  return fmt::format("{} at the deeper anchor: {}, in the engine {}: {}", c.probed_op, alone,
                     percent(c.engine_ratio), why);
}

// What the rest of the step did while the op changed.
std::string wall_gap(const report::AttributionReport& base,
                     const report::AttributionReport& changed, const std::string& op,
                     double op_ns) {
  const measure::Attribution &a = base.attribution, &b = changed.attribution;
  const double wall = b.closure.growth.value - a.closure.growth.value, rest = wall - op_ns;
  const double limit = std::max(a.closure.limit_ns, b.closure.limit_ns);
  return fmt::format("the unwatched step's growth changes by {}, that of {} in it by {}: {} {}",
                     signed_time_text(wall), op, signed_time_text(op_ns), signed_time_text(rest),
                     std::abs(rest) <= limit
                         ? "is within what the sums may miss"
                         : "is in the other ops and the idle time between launches");
}

// Where the measured growth lies outside of what was predicted.
std::optional<std::string> gap_of(const Confirmation::Effect& e) {
  const auto& [least, most] = *e.predicted_ns;
  if (e.changed_ci.hi >= least && e.changed_ci.lo <= most) return std::nullopt;
  const double gap = e.changed_ns < least ? e.changed_ns - least : e.changed_ns - most;
  return fmt::format("{} grows by {} against what was predicted: {}", e.what, signed_time_text(gap),
                     gap > 0 ? "part of the exposed time does not follow this knob, or something "
                               "else came with it"
                             : "more than the exposed time followed this knob");
}

}  // namespace

Knob parse_knob(const std::string& text, const OpenOptions& base, const ModelInfo& info,
                const Backend& backend) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool on_host = info.in_host_memory;
  if (!value.empty()) {
    if (name == "threads" && on_host) return threads_knob(value, info);
    if (name == "cache-type") {
      Knob knob = cache_type_knob(value, info);
      if (!base.variant.empty()) {
        knob.variant_before = knob.variant_after = engine::find_variant(backend, base.variant).name;
      }
      return knob;
    }
    if (name == "variant") return variant_knob(value, base, info, backend);
    if (!on_host) return variant_knobs_knob(text, base, info, backend);
  }
  fail(ErrorCode::usage, "--confirm '{}': the backend {} has the knobs {}", text, base.backend,
       on_host ? "threads=VALUE, cache-type=VALUE"
               : "cache-type=VALUE, variant=NAME, and those of the --variant that runs");
}

Confirmation confirmation_of(const Knob& knob, const report::AttributionReport& base,
                             const report::AttributionReport& changed,
                             const LaunchState& launches) {
  Confirmation out;
  out.knob = knob.text;
  out.basis = knob.basis;
  std::array<double, 2> step{base.attribution.closure.growth.value,
                             base.attribution.closure.growth.value};
  for (const Decomposition& before : base.decompositions) {
    const Decomposition* after = find(changed.decompositions, before.op);
    if (!after) continue;
    const measure::OpGrowth* const measured = find(changed.attribution.ops, before.op);
    if (!measured || !(knob.every_op || knob.op == before.op)) continue;
    const std::array<double, 2> predicted = predicted_growth(knob, before, *after, launches);
    for (size_t i : {size_t{0}, size_t{1}}) step[i] += predicted[i] - before.growth_ns();
    out.effects.push_back({.what = fmt::format("{} in the engine", before.op),
                           .base_ns = before.growth_ns(),
                           .changed_ns = measured->growth.value,
                           .predicted_ns = predicted,
                           .changed_ci = measured->growth.interval});
    const double unchanged = after->floor_growth_ns() + before.exposed_growth_ns();
    if (const auto share = share_text(before.op, unchanged, out.effects.back())) {
      out.gaps.push_back(*share);
    }
  }
  const measure::Estimate& wall = changed.attribution.closure.growth;
  out.effects.push_back({.what = "the unwatched step",
                         .base_ns = base.attribution.closure.growth.value,
                         .changed_ns = wall.value,
                         .predicted_ns = step,
                         .changed_ci = wall.interval});
  bool holds = true;
  for (const Confirmation::Effect& effect : out.effects) {
    const std::optional<std::string> gap = gap_of(effect);
    if (!gap) continue;
    holds = false;
    out.gaps.push_back(*gap);
  }
  if (holds) out.gaps.insert(out.gaps.begin(), "Every prediction holds.");
  return out;
}

void name_gaps(Confirmation& c, const report::AttributionReport& base,
               const report::AttributionReport& changed) {
  const measure::OpGrowth* const before = find(base.attribution.ops, c.probed_op);
  const measure::OpGrowth* const after = find(changed.attribution.ops, c.probed_op);
  if (before && after && before->hi_ns > 0) c.engine_ratio = after->hi_ns / before->hi_ns;
  if (!c.probed.empty()) c.gaps.push_back(probe_gap(c));
  double op_ns = 0;
  if (before && after) op_ns = after->growth.value - before->growth.value;
  c.gaps.push_back(wall_gap(base, changed, c.probed_op, op_ns));
  for (const report::Gate& gate : changed.gates) {
    if (!gate.pass) {
      c.gaps.push_back(fmt::format("the changed engine fails gate {}: {}", gate.id, gate.why));
    }
  }
}

}  // namespace fathom::cli

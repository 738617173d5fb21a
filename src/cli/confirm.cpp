// SPDX-License-Identifier: Apache-2.0
// The knobs, the prediction from bytes, arithmetic and the exposed rest, and the comparison.
#include "cli/confirm.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "cli/arguments.hpp"
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
          [factor](const Decomposition&) {
            return std::array{std::min(1.0, factor), std::max(1.0, factor)};
          }};
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
              [](const Decomposition&) {
                return std::array{1.0, 1.0};
              }};
}

struct KnobKind {
  const char* name;
  Knob (*make)(const std::string& value, const ModelInfo& info);
};
constexpr KnobKind kKnobs[] = {{"threads", threads_knob}, {"cache-type", cache_type_knob}};

const Decomposition* find(const std::vector<Decomposition>& all, const std::string& op) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Decomposition& d) { return d.op == op; });
  return found == all.end() ? nullptr : &*found;
}

// The floor is that of the changed engine's bytes, arithmetic and peaks; its times are not used.
std::array<double, 2> predicted_growth(const Knob& knob, const Decomposition& before,
                                       const Decomposition& after) {
  const std::array<double, 2> factors = knob.exposed_factors(before);
  const double exposed = before.exposed_growth_ns();
  std::array<double, 2> out{after.floor_growth_ns() + factors[0] * exposed,
                            after.floor_growth_ns() + factors[1] * exposed};
  std::sort(out.begin(), out.end());
  return out;
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

Knob parse_knob(const std::string& text, const OpenOptions& base, const ModelInfo& info) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::string names;
  for (const KnobKind& kind : kKnobs) {
    if (name == kind.name && equals != std::string::npos && base.backend == "cpu") {
      return kind.make(text.substr(equals + 1), info);
    }
    names += fmt::format("{}{}=VALUE", names.empty() ? "" : ", ", kind.name);
  }
  fail(ErrorCode::usage, "--confirm '{}': the backend {} has {}", text, base.backend,
       base.backend == "cpu" ? "the knobs " + names : "no knobs yet");
}

Confirmation confirmation_of(const Knob& knob, const report::AttributionReport& base,
                             const report::AttributionReport& changed) {
  Confirmation out{
      .knob = knob.text, .basis = knob.basis, .effects = {}, .gaps = {}, .problem = ""};
  std::array<double, 2> step{base.attribution.closure.growth.value,
                             base.attribution.closure.growth.value};
  for (const Decomposition& before : base.decompositions) {
    const Decomposition* after = find(changed.decompositions, before.op);
    if (!after) continue;
    const auto& ops = changed.attribution.ops;
    const auto measured = std::find_if(
        ops.begin(), ops.end(), [&](const measure::OpGrowth& op) { return op.op == before.op; });
    const std::array<double, 2> predicted = predicted_growth(knob, before, *after);
    for (size_t i : {size_t{0}, size_t{1}}) step[i] += predicted[i] - before.growth_ns();
    out.effects.push_back({.what = fmt::format("{} in the engine", before.op),
                           .base_ns = before.growth_ns(),
                           .changed_ns = measured->growth.value,
                           .predicted_ns = predicted,
                           .changed_ci = measured->growth.interval});
  }
  const measure::Estimate& wall = changed.attribution.closure.growth;
  out.effects.push_back({.what = "the unwatched step",
                         .base_ns = base.attribution.closure.growth.value,
                         .changed_ns = wall.value,
                         .predicted_ns = step,
                         .changed_ci = wall.interval});
  for (const Confirmation::Effect& effect : out.effects) {
    if (const std::optional<std::string> gap = gap_of(effect)) out.gaps.push_back(*gap);
  }
  if (out.gaps.empty()) out.gaps.push_back("Every prediction holds.");
  return out;
}

}  // namespace fathom::cli

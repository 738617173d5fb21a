// SPDX-License-Identifier: Apache-2.0
// One function for each gate.
#include "report/attribution_gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/ceiling.hpp"
#include "report/time_text.hpp"

namespace fathom::report {
namespace {

using measure::Attribution;

Gate additivity_gate(const Attribution& a) {
  const measure::Closure& c = a.closure;
  Gate gate{.id = "additivity",
            .pass = c.closes && c.precise,
            .value = c.residual.value * 1e-3,
            .limit = c.limit_ns * 1e-3,
            .why = ""};
  if (!c.closes) {
    gate.why =
        fmt::format("the ops' growth misses the unwatched step's {} by {}, {} are allowed ({})",
                    signed_time_text(c.growth.value), signed_time_text(c.residual.value),
                    time_text(c.limit_ns), c.limit_why);
    gate.why += fmt::format("; a growth of {} would drown it: give anchors farther apart",
                            time_text(std::abs(c.residual.value) / measure::kClosureShare));
  } else if (!c.precise) {
    gate.why = fmt::format(
        "the interval of what is left over is ± {} wide, {} are allowed ({}): give it more "
        "--seconds, or an idle machine",
        time_text(c.residual.half_width()), time_text(c.limit_ns), c.limit_why);
  } else {
    gate.why = fmt::format("{} ± {} of the unwatched step's {} are left over, {} are allowed ({})",
                           signed_time_text(c.residual.value), time_text(c.residual.half_width()),
                           signed_time_text(c.growth.value), time_text(c.limit_ns), c.limit_why);
  }
  return gate;
}

Gate aa_gate(const Attribution& a) {
  const double floor = a.closure.aa_floor_ns, growth = std::abs(a.closure.growth.value);
  return {.id = "aa_noise",
          .pass = floor <= measure::kFloorShare * growth,
          .value = growth > 0 ? floor / growth : std::optional<double>(),
          .limit = measure::kFloorShare,
          .why = fmt::format("equal steps differ by up to {} here, the step grows by {}",
                             time_text(floor), signed_time_text(a.closure.growth.value))};
}

Gate overhead_gate(const AttributionReport& r, int anchor) {
  const double overhead = r.attribution.overhead[anchor];
  return {
      .id = "overhead",
      .pass = overhead <= measure::kOverheadShare,
      .value = overhead,
      .limit = measure::kOverheadShare,
      .why = fmt::format("at depth {}, a watched step takes {:+.1f} % of an unwatched one's time",
                         anchor == 0 ? r.depths.front() : r.depths.back(), 100 * overhead)};
}

Gate clock_gate(const Attribution& a) {
  Gate gate{.id = "clock_drift",
            .pass = a.clock_drift <= measure::kClockDriftShare,
            .value = {},
            .limit = measure::kClockDriftShare,
            .why = "not judged: the clock cannot be read here"};
  if (a.clock_drift < 0) return gate;
  gate.value = a.clock_drift;
  gate.why = fmt::format("the arms' median clocks lie within {:.2f} %", 100 * a.clock_drift);
  return gate;
}

Gate anchor_gate(const AttributionReport& r, size_t i) {
  const int64_t expected = r.kv_token_bytes * (r.depths[i] + 1) * r.n_parallel;
  return {.id = "anchor",
          .pass = r.kv_bytes[i] == expected,
          .value = static_cast<double>(r.kv_bytes[i]),
          .limit = static_cast<double>(expected),
          .why = fmt::format("a step at depth {} declares to read {} bytes of the cache, the "
                             "positions 0 to {} of {} are {} bytes",
                             r.depths[i], r.kv_bytes[i], r.depths[i],
                             r.n_parallel == 1 ? std::string("its sequence")
                                               : fmt::format("{} sequences", r.n_parallel),
                             expected)};
}

Gate step_ceiling_gate(const AttributionReport& r, size_t anchor) {
  const size_t depth = anchor == 0 ? 0 : r.depths.size() - 1;
  const int64_t bytes = total_bytes(anchor == 0 ? r.costs_lo : r.costs_hi);
  const double gbps = static_cast<double>(bytes) / r.attribution.untraced_ns[depth];
  return ceiling_gate(fmt::format("a step at depth {}", r.depths[depth]), bytes,
                      gbps / r.peaks.memory_gbps, r.peaks.cache_bytes);
}

}  // namespace

Gate plan_gate(const AttributionReport& r, const LogitsHashes& hashes) {
  bool same = true;
  for (int i : {0, 1}) same = same && hashes.unwatched[i] == hashes.watched[i];
  return {.id = "plan",
          .pass = same,
          .value = {},
          .limit = {},
          .why = same ? fmt::format("watched steps ran the same {} launches in every window and "
                                    "ended with the logits of unwatched ones",
                                    r.attribution.launches.size())
                      : "watched steps end with other logits than unwatched ones"};
}

std::vector<Gate> attribution_gates(const AttributionReport& r) {
  std::vector<Gate> gates{additivity_gate(r.attribution), aa_gate(r.attribution),
                          overhead_gate(r, 0), overhead_gate(r, 1), clock_gate(r.attribution)};
  if (r.costs_lo.empty()) return gates;
  for (size_t i = 0; i < r.depths.size(); ++i) gates.push_back(anchor_gate(r, i));
  if (r.peaks.memory_gbps > 0) {
    for (size_t anchor : {size_t{0}, size_t{1}}) gates.push_back(step_ceiling_gate(r, anchor));
  }
  return gates;
}

std::vector<Gate> device_ceiling_gates(const std::string& device, const measure::Peaks& peaks) {
  if (least_ceiling_gbps(device) <= 0 || peaks.memory_gbps <= 0) return {};
  return {least_ceiling_gate(device, peaks.memory_gbps)};
}

Gate broken_window_gate(const std::string& problem) {
  return {.id = "plan", .pass = false, .value = {}, .limit = {}, .why = problem};
}

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// The tests, in the order in which they may decide.
#include "measure/diagnosis.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fathom::measure {
namespace {

constexpr double kBandwidthShare = 0.8;
constexpr double kComputeShare = 0.6;
constexpr double kIdleShare = 0.6;  // below it a limit was not met
constexpr double kActiveShare = 0.8;
constexpr double kLaunchShare = 0.5;
constexpr double kFewestBytes = 0.9;      // of the declared ones: below it a cache served some
constexpr double kMostBytes = 1.2;        // above it some were read again
constexpr double kPlausibleShare = 1.03;  // of a peak; more was not what the peak measures

// Waiting for loads, as the counters of several chips call it.
bool waits_for_loads(const std::string& stall) {
  return stall.find("long_scoreboard") != std::string::npos;
}

struct Rates {
  double memory = 0;  // shares of the peaks
  std::optional<double> compute;
  bool counted = false;  // the bytes are those that counters saw
};

Rates rates_of(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks) {
  Rates rates;
  const double growth_ns = parts.growth_ns();
  if (evidence.memory_bytes) {
    rates.memory = *evidence.memory_bytes / parts.hi.ns / peaks.memory_gbps;
    rates.counted = true;
  } else {
    rates.memory = parts.bytes_growth_ns() / growth_ns;
  }
  if (evidence.compute_share) {
    rates.compute = evidence.compute_share;
  } else if (parts.hi.compute_ns) {
    rates.compute = (*parts.hi.compute_ns - *parts.lo.compute_ns) / growth_ns;
  }
  return rates;
}

void tell_rates(Diagnosis& out, const Decomposition& parts, const Rates& rates) {
  out.known.push_back(
      rates.counted
          ? fmt::format("counters: memory traffic at {:.0f} % of the measured peak",
                        100 * rates.memory)
          : fmt::format("the growth's declared bytes ({:.2f} MB) come at {:.0f} % of the {} peak "
                        "measured in this run",
                        static_cast<double>(parts.bytes_hi - parts.bytes_lo) * 1e-6,
                        100 * rates.memory,
                        parts.residence == Residence::memory ? "memory's" : "cache's"));
  if (rates.compute) {
    out.known.push_back(
        fmt::format("its arithmetic runs at {:.0f} % of the measured peak", 100 * *rates.compute));
  } else {
    out.missing.push_back("a measured peak for this op's arithmetic");
  }
  out.known.push_back(
      fmt::format("{:.1f} us of the {:.1f} us are neither bytes nor arithmetic at "
                  "their peaks",
                  parts.exposed_growth_ns() * 1e-3, parts.growth_ns() * 1e-3));
}

// Whether counters saw the bytes that the op declares.
void tell_bytes(Diagnosis& out, const Decomposition& parts, const Evidence& evidence) {
  if (!evidence.memory_bytes || parts.bytes_hi == 0) return;
  const double ratio = *evidence.memory_bytes / static_cast<double>(parts.bytes_hi);
  out.known.push_back(fmt::format("counters saw {:.2f} times the declared bytes{}", ratio,
                                  ratio < kFewestBytes ? ": a cache served the rest"
                                  : ratio > kMostBytes ? ": some were read more than once"
                                                       : ""));
}

void tell_missing(Diagnosis& out, const Evidence& evidence, bool counted) {
  const std::string why =
      evidence.why_no_counters.empty() ? "" : fmt::format(" ({})", evidence.why_no_counters);
  if (!counted) out.missing.push_back("bytes that really crossed the memory bus" + why);
  if (!evidence.units_active) out.missing.push_back("how busy the compute units were" + why);
  if (evidence.top_stall.empty()) out.missing.push_back("what the instructions waited for" + why);
}

bool too_few_blocks(const Evidence& evidence) {
  return evidence.blocks && evidence.units && *evidence.blocks < *evidence.units;
}

// A verdict of bandwidth from declared bytes holds only where they cannot come from a cache.
bool bandwidth_shown(const Decomposition& parts, const Rates& rates) {
  if (rates.memory < kBandwidthShare) return false;
  if (rates.counted) return true;
  return parts.residence == Residence::memory && rates.memory <= kPlausibleShare;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"bandwidth", "memory latency", "parallelism",
                                    "compute",   "launch gap",     "undetermined"};
  return kNames[static_cast<int>(verdict)];
}

const char* lever_of(Verdict verdict) {
  constexpr const char* kLevers[] = {
      "more bytes saved: a smaller cache type (-ctk, -ctv), or fewer cached heads",
      "deeper staging: more loads under way before the first is used",
      "more splits: more units of work at the same time",
      "fewer or cheaper operations: wider instructions, a smaller head",
      "fewer launches: ops fused, or steps replayed as a graph",
      "more evidence first; --confirm changes one knob and compares with the prediction"};
  return kLevers[static_cast<int>(verdict)];
}

Diagnosis diagnose(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks) {
  Diagnosis out{.op = parts.op, .verdict = Verdict::undetermined, .known = {}, .missing = {}};
  const Rates rates = rates_of(parts, evidence, peaks);
  tell_rates(out, parts, rates);
  if (parts.bytes_hi == parts.bytes_lo && parts.flops_hi == parts.flops_lo) {
    out.known.push_back(
        "it declares the same work at both depths: something beside it, such as what the caches "
        "hold, makes that work slower");
  }
  tell_bytes(out, parts, evidence);
  if (parts.residence == Residence::partly_cached) {
    out.known.push_back(
        "a step's bytes are between one and two last-level caches, so part of them "
        "may come from there");
  }
  if (evidence.units_active) {
    out.known.push_back(
        fmt::format("compute units had work {:.0f} % of the time", 100 * *evidence.units_active));
  }
  if (too_few_blocks(evidence)) {
    out.known.push_back(fmt::format("its largest launch has {} blocks for {} units",
                                    *evidence.blocks, *evidence.units));
  }
  if (!evidence.top_stall.empty()) {
    out.known.push_back(
        fmt::format("the largest stall is {}{}", evidence.top_stall,
                    evidence.stall_site.empty() ? "" : fmt::format(", {}", evidence.stall_site)));
  }

  const bool memory_idle = rates.counted && rates.memory < kIdleShare;
  const bool compute_idle = rates.compute && *rates.compute < kIdleShare;
  if (bandwidth_shown(parts, rates)) {
    out.verdict = Verdict::bandwidth;
  } else if (rates.compute && *rates.compute >= kComputeShare &&
             *rates.compute <= kPlausibleShare) {
    out.verdict = Verdict::compute;
  } else if (evidence.units_active && *evidence.units_active < kActiveShare) {
    out.verdict = Verdict::parallelism;
  } else if (memory_idle && compute_idle && evidence.units_active &&
             waits_for_loads(evidence.top_stall)) {
    out.verdict = Verdict::memory_latency;
  }
  if (out.verdict == Verdict::undetermined) tell_missing(out, evidence, rates.counted);
  return out;
}

std::optional<Diagnosis> diagnose_gaps(const Attribution& attribution) {
  const double growth = attribution.closure.growth.value;
  if (growth <= 0 || attribution.gaps.value < kLaunchShare * growth) return std::nullopt;
  return Diagnosis{
      .op = "gaps",
      .verdict = Verdict::launch,
      .known = {fmt::format("idle time between launches grows by {:.1f} us of the step's {:.1f} us",
                            attribution.gaps.value * 1e-3, growth * 1e-3),
                "the sum closes against the unwatched steps, so they idle as long"},
      .missing = {}};
}

}  // namespace fathom::measure

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

struct Rates {
  double memory = 0;  // shares of the peaks
  std::optional<double> compute;
  bool counted = false;  // the bytes are those that counters saw
};

// Of the growth where both anchors were counted and its time holds the bytes; what of them passed
// under a neighbour's time makes that impossible, and then the whole op at the deeper anchor
// counts.
double counted_rate(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks) {
  if (evidence.memory_bytes_lo) {
    const double rate = (*evidence.memory_bytes - *evidence.memory_bytes_lo) / parts.growth_ns() /
                        peaks.memory_gbps;
    if (rate >= 0 && rate <= kPlausibleShare) return rate;
  }
  return *evidence.memory_bytes / parts.hi.ns / peaks.memory_gbps;
}

Rates rates_of(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks) {
  Rates rates;
  const double growth_ns = parts.growth_ns();
  rates.counted = evidence.memory_bytes.has_value();
  rates.memory =
      rates.counted ? counted_rate(parts, evidence, peaks) : parts.bytes_growth_ns() / growth_ns;
  if (evidence.compute_share) {
    rates.compute = evidence.compute_share;
  } else if (parts.hi.compute_ns) {
    rates.compute = (*parts.hi.compute_ns - *parts.lo.compute_ns) / growth_ns;
  }
  return rates;
}

void tell_memory(Diagnosis& out, const Decomposition& parts, const Evidence& evidence,
                 const Rates& rates) {
  if (!rates.counted) {
    out.known.push_back(
        fmt::format("the growth's declared bytes ({:.2f} MB) come at {:.0f} % of the {} peak "
                    "measured in this run",
                    static_cast<double>(parts.bytes_hi - parts.bytes_lo) * 1e-6, 100 * rates.memory,
                    parts.residence == Residence::memory ? "memory's" : "cache's"));
    return;
  }
  std::string more;
  if (evidence.memory_bytes_lo) {
    more = fmt::format("{:+.2f} MB a step, ",
                       (*evidence.memory_bytes - *evidence.memory_bytes_lo) * 1e-6);
  }
  out.known.push_back(fmt::format("counters: {}memory traffic at {:.0f} % of the measured peak",
                                  more, 100 * rates.memory));
}

void tell_compute(Diagnosis& out, const Evidence& evidence, const Rates& rates) {
  if (evidence.compute_share) {
    out.known.push_back(fmt::format(
        "counters: the {} works {:.0f} % of the time",
        evidence.compute_pipe.empty() ? "busiest arithmetic pipe" : evidence.compute_pipe,
        100 * *evidence.compute_share));
  } else if (rates.compute) {
    out.known.push_back(
        fmt::format("its arithmetic runs at {:.0f} % of the measured peak", 100 * *rates.compute));
  } else {
    out.missing.push_back("a measured peak for this op's arithmetic");
  }
}

// Whether counters saw the bytes that the op declares.
void tell_bytes(Diagnosis& out, const Decomposition& parts, const Evidence& evidence) {
  const std::optional<double> read =
      evidence.read_bytes ? evidence.read_bytes : evidence.memory_bytes;
  const std::optional<BytesCheck> check =
      check_bytes(read, parts.bytes_hi, evidence.reads_prefetch);
  if (!check) return;
  constexpr const char* kWhy[] = {"", ": some were read more than once (re-reads)",
                                  ": a cache served the rest (L2-served)",
                                  ": caches or prefetches that are not counted served the rest"};
  out.known.push_back(fmt::format("counters saw {:.2f} times the declared bytes{}",
                                  *read / static_cast<double>(parts.bytes_hi),
                                  kWhy[static_cast<int>(*check)]));
}

// Of a host's threads.
void tell_cpu(Diagnosis& out, const Evidence& evidence) {
  if (!evidence.instructions_per_cycle) return;
  std::string more;
  if (evidence.instructions_per_cycle_lo) {
    more = fmt::format(" ({:.2f} at the shallow anchor)", *evidence.instructions_per_cycle_lo);
  }
  if (evidence.backend_stalled) {
    more += fmt::format("; the back end stalled in {:.0f} % of the cycles",
                        100 * *evidence.backend_stalled);
  }
  out.known.push_back(fmt::format("counters: {:.2f} instructions in each cycle of its threads{}",
                                  *evidence.instructions_per_cycle, more));
}

void tell_units(Diagnosis& out, const Evidence& evidence) {
  if (evidence.units_active) {
    out.known.push_back(fmt::format(
        "compute units had work {:.0f} % of the time{}", 100 * *evidence.units_active,
        evidence.occupancy
            ? fmt::format(", with {:.0f} % of the warps that fit", 100 * *evidence.occupancy)
            : ""));
  }
  if (!evidence.blocks || !evidence.units) return;
  const bool few = *evidence.blocks < *evidence.units;
  if (!few && !evidence.waves) return;
  out.known.push_back(fmt::format(
      "its largest launch has {} blocks for {} units{}", *evidence.blocks, *evidence.units,
      evidence.waves ? fmt::format(", {:.2f} waves", *evidence.waves) : ""));
}

// How much longer it works on its own, with no neighbour beside it.
void tell_cycles(Diagnosis& out, const Decomposition& parts, const Evidence& evidence) {
  if (!evidence.busiest_cycles || !evidence.busiest_cycles_lo) return;
  if (*evidence.busiest_cycles_lo <= 0 || parts.lo.ns <= 0) return;
  out.known.push_back(fmt::format(
      "alone, its busiest unit works {:.2f} times as long as at the shallow anchor; in "
      "the step it takes {:.2f} times as long",
      *evidence.busiest_cycles / *evidence.busiest_cycles_lo, parts.hi.ns / parts.lo.ns));
}

void tell_stall(Diagnosis& out, const Evidence& evidence) {
  if (evidence.top_stall.empty()) return;
  out.known.push_back(
      fmt::format("the largest stall is {}{}{}", evidence.top_stall,
                  evidence.top_stall_share
                      ? fmt::format(" ({:.0f} % of all waiting)", 100 * *evidence.top_stall_share)
                      : "",
                  evidence.stall_site.empty() ? "" : fmt::format("; {}", evidence.stall_site)));
}

void tell_missing(Diagnosis& out, const Evidence& evidence, bool counted) {
  const auto because = [](const std::string& why) {
    return why.empty() ? "" : fmt::format(" ({})", why);
  };
  const std::string& of_stalls =
      evidence.why_no_stalls.empty() ? evidence.why_no_counters : evidence.why_no_stalls;
  const bool misses = evidence.read_bytes && !evidence.reads_prefetch;
  if (!counted) {
    out.missing.push_back(
        "bytes that really crossed the memory bus" +
        because(misses ? "only misses of reads are counted" : evidence.why_no_counters));
  }
  if (!evidence.units_active) {
    out.missing.push_back(
        "how busy the compute units were" +
        because(misses ? "no counter of a host says it" : evidence.why_no_counters));
  }
  if (evidence.top_stall.empty()) {
    out.missing.push_back("what the instructions waited for" + because(of_stalls));
  }
}

// A verdict of bandwidth from declared bytes holds only where they cannot come from a cache.
bool bandwidth_shown(const Decomposition& parts, const Rates& rates) {
  if (rates.memory < kBandwidthShare || rates.memory > kPlausibleShare) return false;
  return rates.counted || parts.residence == Residence::memory;
}

Bottleneck verdict_of(const Decomposition& parts, const Evidence& evidence, const Rates& rates) {
  const bool computes =
      rates.compute && *rates.compute >= kComputeShare && *rates.compute <= kPlausibleShare;
  const bool waits = waits_for_loads(evidence.top_stall);
  if (bandwidth_shown(parts, rates)) return Bottleneck::bandwidth;
  if (computes && !waits) return Bottleneck::compute;
  if (computes || !evidence.units_active) return Bottleneck::undetermined;
  if (*evidence.units_active < kActiveShare) return Bottleneck::parallelism;
  const bool memory_idle = rates.counted && rates.memory < kIdleShare;
  const bool compute_idle = rates.compute && *rates.compute < kIdleShare;
  return memory_idle && compute_idle && waits ? Bottleneck::memory_latency
                                              : Bottleneck::undetermined;
}

// Of evidence that is all there and meets no test.
void tell_conflict(Diagnosis& out, const Evidence& evidence, const Rates& rates) {
  if (!out.missing.empty()) return;
  if (rates.memory > kPlausibleShare) {
    out.known.push_back(
        "that is more than the memory gives: part of its time passes under another op");
  } else if (rates.memory >= kIdleShare) {
    out.known.push_back(
        "between the tests: too much memory traffic for latency, too little for bandwidth");
  } else if (rates.compute && *rates.compute >= kComputeShare) {
    out.known.push_back("a pipe is busy and yet warps wait for loads: the tests contradict");
  } else if (!waits_for_loads(evidence.top_stall)) {
    out.known.push_back("no limit is met, and what is waited for are not loads");
  }
}

}  // namespace

const char* bottleneck_name(Bottleneck verdict) {
  constexpr const char* kNames[] = {"bandwidth", "memory latency", "parallelism",
                                    "compute",   "launch gap",     "undetermined"};
  return kNames[static_cast<int>(verdict)];
}

const char* lever_of(Bottleneck verdict) {
  constexpr const char* kLevers[] = {
      "more bytes saved: a smaller cache type (-ctk, -ctv), or fewer cached heads",
      "deeper staging: more loads under way before the first is used",
      "more splits: more units of work at the same time",
      "fewer or cheaper operations: wider instructions, a smaller head",
      "fewer launches: ops fused, or steps replayed as a graph",
      "more evidence first; --confirm changes one knob and compares with the prediction"};
  return kLevers[static_cast<int>(verdict)];
}

bool waits_for_loads(const std::string& stall) {
  return stall.find("long_scoreboard") != std::string::npos ||
         stall.find("bulk copy") != std::string::npos;
}

const char* bytes_check_name(BytesCheck check) {
  constexpr const char* kNames[] = {"as declared", "re-reads", "L2-served", "cached or prefetched"};
  return kNames[static_cast<int>(check)];
}

std::optional<BytesCheck> check_bytes(std::optional<double> read_bytes, int64_t declared_bytes,
                                      bool prefetch) {
  if (!read_bytes || declared_bytes == 0) return std::nullopt;
  const double ratio = *read_bytes / static_cast<double>(declared_bytes);
  if (ratio < kFewestBytes) {
    return prefetch ? BytesCheck::l2_served : BytesCheck::cached_or_prefetched;
  }
  return ratio > kMostBytes ? BytesCheck::re_reads : BytesCheck::as_declared;
}

Diagnosis diagnose(const Decomposition& parts, const Evidence& evidence, const Peaks& peaks) {
  Diagnosis out{.op = parts.op, .verdict = Bottleneck::undetermined, .known = {}, .missing = {}};
  const Rates rates = rates_of(parts, evidence, peaks);
  tell_memory(out, parts, evidence, rates);
  tell_compute(out, evidence, rates);
  out.known.push_back(
      fmt::format("{:.1f} us of the {:.1f} us are neither bytes nor arithmetic at their peaks",
                  parts.exposed_growth_ns() * 1e-3, parts.growth_ns() * 1e-3));
  const bool same_work = parts.bytes_hi == parts.bytes_lo && parts.flops_hi == parts.flops_lo;
  if (same_work) {
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
  tell_cpu(out, evidence);
  tell_units(out, evidence);
  tell_cycles(out, parts, evidence);
  tell_stall(out, evidence);
  out.known.insert(out.known.end(), evidence.notes.begin(), evidence.notes.end());
  out.verdict = verdict_of(parts, evidence, rates);
  if (same_work && out.verdict != Bottleneck::bandwidth) {
    out.verdict = Bottleneck::undetermined;
    out.known.push_back("what limits it does so at both depths, so that is not why it grows");
    return out;
  }
  if (out.verdict == Bottleneck::undetermined) {
    tell_missing(out, evidence, rates.counted);
    tell_conflict(out, evidence, rates);
  }
  return out;
}

std::optional<Diagnosis> diagnose_gaps(const Attribution& attribution,
                                       const std::optional<EagerSteps>& eager) {
  const double growth = attribution.closure.growth.value;
  if (growth <= 0 || attribution.gaps.value < kLaunchShare * growth) return std::nullopt;
  Diagnosis out{
      .op = "gaps",
      .verdict = Bottleneck::launch,
      .known = {fmt::format("idle time between launches grows by {:.1f} us of the step's {:.1f} us",
                            attribution.gaps.value * 1e-3, growth * 1e-3),
                "the sum closes against the unwatched steps, so they idle as long"},
      .missing = {}};
  if (!eager) return out;
  const double saved[] = {eager->ns[0] - attribution.untraced_ns.front(),
                          eager->ns[1] - attribution.untraced_ns.back()};
  out.known.push_back(
      fmt::format("launched one by one, unwatched, the steps take {:+.1f} us and {:+.1f} us more "
                  "than as graphs",
                  saved[0] * 1e-3, saved[1] * 1e-3));
  if (saved[0] <= 0 || saved[1] <= 0) {
    out.verdict = Bottleneck::undetermined;
    out.missing.push_back("what else leaves the device idle: launching costs nothing here");
  }
  return out;
}

}  // namespace fathom::measure

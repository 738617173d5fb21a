// SPDX-License-Identifier: Apache-2.0
// Sums over the launches of an op, shares of cycles, and the place with the most waiting.
#include "measure/evidence.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

namespace fathom::measure {
namespace {

constexpr size_t kMostProducers = 4;
// Cycles of the growth stand for the op where it has at least this share of them; below, what an op
// of more blocks does at once in more units looks like more than all of them.
constexpr double kGrownShare = 0.5;
// A wait for a barrier in shared memory, where bulk copies end. Hardware books it under the reason
// of the instruction that asks again and again.
constexpr const char* kCopyWait = "barrier of a bulk copy";
constexpr const char* kBarrierWait = "SYNCS";

struct Pipe {
  const char* counter;
  const char* name;
};
constexpr Pipe kPipes[] = {{"tensor_pipe_pct", "tensor pipe"},
                           {"fma_pipe_pct", "FMA pipe"},
                           {"alu_pipe_pct", "integer pipe"}};

// The place of a counter in the run; none where the device has none.
std::optional<size_t> place_of(const CounterRun& run, const std::string& name) {
  for (size_t i = 0; i < run.counters.size(); ++i) {
    if (run.counters[i].name == name && !run.counters[i].metric.empty()) return i;
  }
  return std::nullopt;
}

// The sum over the op's launches of a counter, each times another where one is given.
std::optional<double> sum_of(const CounterRun& run, const std::string& op, const std::string& name,
                             const std::string& weight = "") {
  const auto at = place_of(run, name);
  const auto weight_at = weight.empty() ? at : place_of(run, weight);
  if (!at || !weight_at) return std::nullopt;
  std::optional<double> sum;
  for (const OpCounters& counters : run.ops) {
    if (counters.op != op || !counters.values[*at] || !counters.values[*weight_at]) continue;
    const double factor = weight.empty() ? 1 : *counters.values[*weight_at];
    sum = sum.value_or(0) + *counters.values[*at] * factor;
  }
  return sum;
}

std::optional<double> plus(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a;
  return *a + *b;
}

// Of the cycles that a growing op takes longer in its busiest unit, the share in which the mean
// unit had work too; of all of its cycles where they are not most of them.
std::optional<double> units_active(const Counted& counted, const std::string& op) {
  std::optional<double> mean[2], busiest[2];
  for (int i : {0, 1}) {
    mean[i] = sum_of(counted.runs[i], op, "sm_cycles_active_avg");
    busiest[i] = sum_of(counted.runs[i], op, "sm_cycles_active_max");
  }
  if (!mean[1] || !busiest[1] || *busiest[1] <= 0) return std::nullopt;
  if (mean[0] && busiest[0] && *busiest[1] - *busiest[0] > kGrownShare * *busiest[1]) {
    return (*mean[1] - *mean[0]) / (*busiest[1] - *busiest[0]);
  }
  return *mean[1] / *busiest[1];
}

void add_pipes(Evidence& out, const CounterRun& run, const std::string& op) {
  const auto busiest = sum_of(run, op, "sm_cycles_active_max");
  if (!busiest || *busiest <= 0) return;
  for (const Pipe& pipe : kPipes) {
    const auto active = sum_of(run, op, pipe.counter, "sm_cycles_active_avg");
    if (!active) continue;
    const double share = *active / 100 / *busiest;
    if (out.compute_share && *out.compute_share >= share) continue;
    out.compute_share = share;
    out.compute_pipe = pipe.name;
  }
}

std::optional<double> share(std::optional<double> part, std::optional<double> whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return *part / *whole;
}

// Of a host. Neither writes nor all prefetches are in the bytes, so they are not the traffic of the
// memory bus, on which a verdict may rest.
void add_host_counters(Evidence& out, const CounterRun& lo, const CounterRun& hi,
                       const std::string& op) {
  out.read_bytes_lo = sum_of(lo, op, "llc_read_miss_bytes");
  out.read_bytes = sum_of(hi, op, "llc_read_miss_bytes");
  out.reads_prefetch = false;
  const auto cycles = sum_of(hi, op, "cpu_cycles");
  out.instructions_per_cycle_lo =
      share(sum_of(lo, op, "cpu_instructions"), sum_of(lo, op, "cpu_cycles"));
  out.instructions_per_cycle = share(sum_of(hi, op, "cpu_instructions"), cycles);
  out.backend_stalled = share(sum_of(hi, op, "cpu_backend_stalled_cycles"), cycles);
  if (!cycles) out.why_no_counters = "the PMU had no room for the counters while this op ran";
}

void add_counters(Evidence& out, const Counted& counted, const std::string& op) {
  const CounterRun& lo = counted.runs[0];
  const CounterRun& hi = counted.runs[1];
  out.read_bytes_lo = sum_of(lo, op, "dram_read_bytes");
  out.read_bytes = sum_of(hi, op, "dram_read_bytes");
  out.memory_bytes_lo = plus(out.read_bytes_lo, sum_of(lo, op, "dram_write_bytes"));
  out.memory_bytes = plus(out.read_bytes, sum_of(hi, op, "dram_write_bytes"));
  out.units_active = units_active(counted, op);
  out.busiest_cycles_lo = sum_of(lo, op, "sm_cycles_active_max");
  out.busiest_cycles = sum_of(hi, op, "sm_cycles_active_max");
  add_pipes(out, hi, op);
  if (place_of(hi, "cpu_cycles")) add_host_counters(out, lo, hi, op);
  const auto cycles = sum_of(hi, op, "sm_cycles_active_avg");
  const auto warps = sum_of(hi, op, "warps_active_pct", "sm_cycles_active_avg");
  if (cycles && warps && *cycles > 0) out.occupancy = *warps / 100 / *cycles;
  for (const Counter& counter : hi.counters) {
    if (counter.note.empty()) continue;
    const std::string note = counter.name + ": " + counter.note;
    if (!counter.metric.empty()) {
      out.notes.push_back(note);
    } else {
      out.why_no_counters += (out.why_no_counters.empty() ? "" : "; ") + note;
    }
  }
}

void add_launches(Evidence& out, const Counted& counted, const std::string& op) {
  for (const auto& [of, launch] : counted.launches) {
    const int64_t blocks = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    if (of != op || (out.blocks && blocks <= *out.blocks)) continue;
    out.blocks = blocks;
    out.waves = launch.waves;
  }
}

// "attn_kernel" of its symbol.
std::string plain_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? plain.get() : symbol;
  if (name.starts_with("void ")) name.erase(0, 5);
  const std::string anonymous = "(anonymous namespace)::";
  if (const size_t at = name.find(anonymous); at != std::string::npos) {
    name.erase(at, anonymous.size());
  }
  name.resize(std::min(name.find_first_of("<("), name.size()));
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

std::string place_text(const CodePlace& place) {
  std::string out = fmt::format("{} at +{:#x}", place.instruction, place.offset);
  if (!place.file.empty()) out += fmt::format(" ({}:{})", place.file, place.line);
  return out;
}

std::string producers_text(const StalledPlace& at) {
  if (at.producers.empty()) return at.problem.empty() ? "" : ": " + at.problem;
  std::string out = ", which may wait for ";
  for (size_t i = 0; i < std::min(kMostProducers, at.producers.size()); ++i) {
    out += (i == 0 ? "" : ", ") + place_text(at.producers[i]);
  }
  if (at.producers.size() > kMostProducers) {
    out += fmt::format(" and {} more", at.producers.size() - kMostProducers);
  }
  return out;
}

// The question itself, or what waits for its answer and for no load.
std::string reason_at(const StalledPlace& at, const std::string& reason) {
  if (at.place.instruction == kBarrierWait) return kCopyWait;
  const bool waits_for_answer =
      reason == "long_scoreboard" && !at.producers.empty() &&
      std::all_of(at.producers.begin(), at.producers.end(),
                  [](const CodePlace& from) { return from.instruction == kBarrierWait; });
  return waits_for_answer ? kCopyWait : reason;
}

int64_t samples_of(const StalledPlace& at, const std::string& reason) {
  int64_t samples = 0;
  for (const StallCount& count : at.reasons) {
    if (reason_at(at, count.reason) == reason) samples += count.samples;
  }
  return samples;
}

void add_stalls(Evidence& out, const StallProfile& profile) {
  std::map<std::string, int64_t> reasons;
  int64_t all = 0;
  for (const KernelStalls& kernel : profile.kernels) {
    for (const StallCount& count : kernel.reasons) reasons[count.reason] += count.samples;
    for (const StalledPlace& at : kernel.places) {
      for (const StallCount& count : at.reasons) {
        if (reason_at(at, count.reason) == count.reason) continue;
        reasons[count.reason] -= count.samples;
        reasons[kCopyWait] += count.samples;
      }
    }
    all += kernel.samples;
  }
  if (all == 0) return;
  const auto top =
      std::max_element(reasons.begin(), reasons.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  out.top_stall = top->first;
  out.top_stall_share = static_cast<double>(top->second) / static_cast<double>(all);
  int64_t most = 0;
  for (const KernelStalls& kernel : profile.kernels) {
    for (const StalledPlace& at : kernel.places) {
      const int64_t samples = samples_of(at, top->first);
      if (samples <= most) continue;
      most = samples;
      out.stall_site = fmt::format("{:.0f} % of all waiting at one place in {}: {}{}",
                                   100.0 * static_cast<double>(samples) / static_cast<double>(all),
                                   plain_name(kernel.kernel), place_text(at.place),
                                   waits_for_loads(top->first) ? producers_text(at) : "");
    }
  }
}

// What stands in the way of counters at either anchor.
std::string problem_of(const Counted& counted) {
  if (!counted.problem.empty()) return counted.problem;
  for (const CounterRun& run : counted.runs) {
    if (!run.problem.empty()) return run.problem;
    if (run.ops.empty()) return "no op was counted";
  }
  return "";
}

}  // namespace

std::vector<std::string> evidence_counters() {
  std::vector<std::string> out{"dram_read_bytes", "dram_write_bytes", "sm_cycles_active_avg",
                               "sm_cycles_active_max", "warps_active_pct"};
  for (const Pipe& pipe : kPipes) out.push_back(pipe.counter);
  return out;
}

Evidence evidence_of(const std::string& op, const Counted& counted, const Sampled& sampled,
                     int64_t units) {
  Evidence out;
  if (units > 0) out.units = units;
  out.why_no_counters = problem_of(counted);
  if (out.why_no_counters.empty()) add_counters(out, counted, op);
  add_launches(out, counted, op);
  out.why_no_stalls = sampled.problem;
  const auto profile = sampled.ops.find(op);
  if (profile == sampled.ops.end()) {
    if (out.why_no_stalls.empty()) out.why_no_stalls = "this op was not sampled";
    return out;
  }
  add_stalls(out, profile->second);
  out.why_no_stalls = profile->second.problem;
  return out;
}

}  // namespace fathom::measure

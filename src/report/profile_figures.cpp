// SPDX-License-Identifier: Apache-2.0
// Means of middle halves, the three gates, and the rounds out of stored samples.
#include "report/profile_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "measure/statistics.hpp"
#include "report/bench_summary.hpp"
#include "report/ceiling.hpp"

namespace fathom::report {
namespace {

using measure::median;

constexpr double kAdditivityShare = 0.02;  // of the wall time may lie outside the ops,
constexpr double kAdditivityNs = 10e3;     // or so much, whichever is more
constexpr double kOverheadShare = 0.10;    // tracing may cost so much of a step

// The places of the values without the lowest and the highest quarter.
std::vector<size_t> middle_half(const std::vector<double>& values) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::sort(places.begin(), places.end(),
            [&](size_t a, size_t b) { return values[a] < values[b]; });
  const std::ptrdiff_t quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
  return {places.begin() + quarter, places.end() - quarter};
}

double mean_of(const std::vector<double>& values, const std::vector<size_t>& places) {
  double sum = 0;
  for (size_t place : places) sum += values[place];
  return sum / static_cast<double>(places.size());
}

// Means of the same steps add up: the ops and what lies outside them give the wall time.
DepthProfile::Round mean_of(const std::vector<DepthProfile::Round>& rounds,
                            const std::vector<size_t>& places) {
  DepthProfile::Round mean;
  mean.op_ns.resize(rounds.front().op_ns.size());
  const double n = static_cast<double>(places.size());
  for (size_t place : places) {
    mean.wall_ns += rounds[place].wall_ns / n;
    mean.outside_ns += rounds[place].outside_ns / n;
    for (size_t op = 0; op < mean.op_ns.size(); ++op) mean.op_ns[op] += rounds[place].op_ns[op] / n;
  }
  return mean;
}

Gate additivity_gate(const DepthProfile& depth) {
  const double limit = std::max(kAdditivityShare * depth.wall_ns, kAdditivityNs);
  return {.id = "additivity",
          .pass = std::abs(depth.wall_ns - depth.sum_ns) <= limit,
          .value = (depth.wall_ns - depth.sum_ns) * 1e-3,
          .limit = limit * 1e-3,
          .why = fmt::format("at depth {}, the ops add up to {:.1f} us of {:.1f} us a step",
                             depth.depth, depth.sum_ns * 1e-3, depth.wall_ns * 1e-3)};
}

Gate overhead_gate(const DepthProfile& depth) {
  std::vector<double> ratios;
  for (size_t round = 0; round < depth.traced.size(); ++round) {
    ratios.push_back(depth.traced[round].wall_ns / depth.untraced_ns[round]);
  }
  const double overhead = measure::hodges_lehmann(ratios) - 1;
  return {
      .id = "overhead",
      .pass = overhead <= kOverheadShare,
      .value = overhead,
      .limit = kOverheadShare,
      .why = fmt::format("at depth {}, a watched step takes {:+.1f} % of an unwatched one's time",
                         depth.depth, 100 * overhead)};
}

Gate step_ceiling_gate(const DepthProfile& depth, const std::vector<double>& ceiling_gbps,
                       int64_t llc_bytes) {
  int64_t bytes = 0;
  for (const DepthProfile::Op& op : depth.ops) bytes += op.bytes;
  std::vector<double> ratios;
  for (size_t round = 0; round < ceiling_gbps.size(); ++round) {
    ratios.push_back(static_cast<double>(bytes) / depth.untraced_ns[round] / ceiling_gbps[round]);
  }
  return ceiling_gate(fmt::format("a step at depth {}", depth.depth), bytes, median(ratios),
                      llc_bytes);
}

// The samples of one arm and depth by round.
std::map<int64_t, Fields> rounds_of(const Fields& samples, const std::string& arm, int64_t depth) {
  std::map<int64_t, Fields> rounds;
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields sample = samples.at(i);
    if (sample.at("arm").text() != arm || sample.at("depth").whole(0) != depth) continue;
    const int64_t round = sample.at("round").whole(0);
    if (!rounds.emplace(round, sample).second) {
      fail(ErrorCode::bad_file, "{}: round {} is there twice", sample.path(), round);
    }
  }
  if (rounds.empty() || rounds.size() > kMostRounds) {
    fail(ErrorCode::bad_file, "samples: {} rounds of '{}' at depth {}, expected 1 to {}",
         rounds.size(), arm, depth, kMostRounds);
  }
  return rounds;
}

DepthProfile::Round traced_round(const Fields& sample, const std::vector<DepthProfile::Op>& ops) {
  DepthProfile::Round round;
  round.wall_ns = sample.at("ns").positive();
  round.outside_ns = sample.at("outside_ns").number();
  const Fields times = sample.at("ops_ns");
  for (const DepthProfile::Op& op : ops) round.op_ns.push_back(times.at(op.name.c_str()).number());
  return round;
}

}  // namespace

double middle_mean(const std::vector<double>& values) {
  return mean_of(values, middle_half(values));
}

DepthProfile::Round middle_mean(const std::vector<DepthProfile::Round>& rounds) {
  std::vector<double> walls;
  for (const DepthProfile::Round& round : rounds) walls.push_back(round.wall_ns);
  return mean_of(rounds, middle_half(walls));
}

void fill_depth_figures(DepthProfile& depth) {
  const DepthProfile::Round all = middle_mean(depth.traced);
  depth.wall_ns = all.wall_ns;
  depth.sum_ns = 0;
  for (size_t op = 0; op < depth.ops.size(); ++op) {
    depth.ops[op].ns = all.op_ns[op];
    depth.sum_ns += all.op_ns[op];
  }
  depth.untraced_mean_ns = middle_mean(depth.untraced_ns);
}

std::vector<Gate> profile_gates(const std::vector<DepthProfile>& depths,
                                const std::vector<double>& ceiling_gbps, int64_t cache_bytes) {
  std::vector<Gate> gates;
  for (const DepthProfile& depth : depths) {
    gates.push_back(additivity_gate(depth));
    gates.push_back(overhead_gate(depth));
    if (!ceiling_gbps.empty()) {
      gates.push_back(step_ceiling_gate(depth, ceiling_gbps, cache_bytes));
    }
  }
  return gates;
}

Json depth_json(const DepthProfile& depth, double peak_gbps) {
  Json ops = Json::array();
  for (const DepthProfile::Op& op : depth.ops) {
    const double gbps = static_cast<double>(op.bytes) / op.ns;
    ops.push_back({{"op", op.name},
                   {"calls", op.calls},
                   {"ns", op.ns},
                   {"bytes", op.bytes},
                   {"gbps", op.bytes > 0 ? Json(gbps) : Json(nullptr)},
                   {"pct_of_peak",
                    op.bytes > 0 && peak_gbps > 0 ? Json(100 * gbps / peak_gbps) : Json(nullptr)}});
  }
  return {{"depth", depth.depth},
          {"kv_fill", depth.kv_fill},
          {"ops", ops},
          {"sum_ns", depth.sum_ns},
          {"wall_ns", depth.wall_ns},
          {"difference_ns", depth.wall_ns - depth.sum_ns},
          {"untraced_ns", depth.untraced_mean_ns}};
}

std::vector<DepthProfile> stored_depths(const Fields& profile, const Fields& samples) {
  std::vector<DepthProfile> out;
  const Fields depths = profile.at("depths");
  for (size_t i = 0; i < depths.size(); ++i) {
    const Fields stored = depths.at(i);
    DepthProfile& depth = out.emplace_back();
    depth.depth = stored.at("depth").whole(0);
    depth.kv_fill = stored.at("kv_fill").text();
    const Fields ops = stored.at("ops");
    for (size_t op = 0; op < ops.size(); ++op) {
      depth.ops.push_back({ops.at(op).at("op").text(), 0, ops.at(op).at("calls").whole(0),
                           ops.at(op).at("bytes").whole(0)});
    }
    for (const auto& [round, sample] : rounds_of(samples, "traced", depth.depth)) {
      depth.traced.push_back(traced_round(sample, depth.ops));
    }
    for (const auto& [round, sample] : rounds_of(samples, "untraced", depth.depth)) {
      depth.untraced_ns.push_back(sample.at("ns").positive());
    }
    if (depth.traced.size() != depth.untraced_ns.size()) {
      fail(ErrorCode::bad_file, "samples: {} traced and {} untraced rounds at depth {}",
           depth.traced.size(), depth.untraced_ns.size(), depth.depth);
    }
    fill_depth_figures(depth);
  }
  if (out.empty()) depths.refuse("at least one depth");
  return out;
}

}  // namespace fathom::report

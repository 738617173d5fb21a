// SPDX-License-Identifier: Apache-2.0
// Samples sorted to their rows, the figures of each, the gates of each and of each configuration.
#include "report/bench_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "measure/comparison.hpp"
#include "measure/gpu_idle.hpp"
#include "measure/host_gap.hpp"
#include "measure/limits.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "measure/steady_state.hpp"
#include "report/ceiling.hpp"

namespace fathom::report {
namespace {

using measure::median;

constexpr size_t kClockRounds = 3;  // fewer clocks of an arm are no median

// One value of each round, with what stood beside it.
struct Series {
  std::vector<double> values;
  std::vector<std::optional<double>> clock_mhz;
  std::vector<unsigned> flags;
  std::vector<std::string> hashes;
  int64_t captures = 0;
};

unsigned flags_of(const Fields& sample) {
  unsigned flags = 0;
  if (!sample.has("flags")) return flags;
  const Fields names = sample.at("flags");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = names.at(i).text();
    for (unsigned flag = 1; flag <= measure::kFlagContended; flag *= 2) {
      if (measure::flag_names(flag).front() == name) flags |= flag;
    }
  }
  return flags;
}

// Samples of one arm in the order of their rounds, each round once.
class Collector {
 public:
  void add(const Fields& sample, const char* value_name) {
    const int64_t round = sample.at("round").whole(0);
    if (!by_round_.emplace(round, sample).second) {
      fail(ErrorCode::bad_file, "{}: round {} is there twice", sample.path(), round);
    }
    if (by_round_.size() > kMostRounds) {
      fail(ErrorCode::bad_file, "{}: more than {} rounds of one arm", sample.path(), kMostRounds);
    }
    value_name_ = value_name;
  }
  Series series() const {
    Series out;
    int64_t expected = 0;
    for (const auto& [round, sample] : by_round_) {
      if (round != expected++) {
        fail(ErrorCode::bad_file, "{}: round {} of its arm is missing", sample.path(),
             expected - 1);
      }
      out.values.push_back(sample.at(value_name_).positive());
      out.clock_mhz.push_back(sample.number_at("clock_mhz"));
      out.flags.push_back(flags_of(sample));
      out.hashes.push_back(sample.text_at("logits_hash"));
      out.captures += sample.whole_at("graph_captures", 0);
    }
    return out;
  }

 private:
  std::map<int64_t, Fields> by_round_;
  const char* value_name_ = "ns";
};

struct Collected {
  std::vector<Series> rows;
  std::map<size_t, Series> ceilings;                  // by configuration
  std::map<size_t, std::pair<size_t, Series>> twins;  // by configuration: of which row
  std::vector<double> canary_us;
  std::map<size_t, Fields> logits, gaps;  // by row
};

size_t index_at(const Fields& sample, const char* key, size_t end) {
  const int64_t index = sample.at(key).whole(0);
  if (index >= static_cast<int64_t>(end)) {
    fail(ErrorCode::bad_file, "{}.{}: {} of {}", sample.path(), key, index, end);
  }
  return static_cast<size_t>(index);
}

Collected collect(const Fields& samples, const std::vector<BenchRow>& rows,
                  size_t n_configurations) {
  std::vector<Collector> by_row(rows.size());
  std::map<size_t, Collector> ceilings;
  std::map<size_t, std::pair<size_t, Collector>> twins;
  Collected out;
  const std::vector<std::optional<size_t>> row_of = rows_of_samples(samples, rows.size());
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields sample = samples.at(i);
    const std::string arm = sample.at("arm").text();
    if (arm == "ceiling") {
      ceilings[index_at(sample, "configuration", n_configurations)].add(sample, "gbps");
    } else if (arm == "canary") {
      out.canary_us = sample.at("values").numbers();
    } else if (arm == "logits") {
      out.logits.emplace(index_at(sample, "row", rows.size()), sample);
    } else if (arm == "gap") {
      out.gaps.emplace(index_at(sample, "row", rows.size()), sample);
    } else if (sample.has("twin_of")) {
      auto& twin = twins[index_at(sample, "configuration", n_configurations)];
      twin.first = index_at(sample, "twin_of", rows.size());
      twin.second.add(sample, "ns");
    } else if (row_of[i]) {
      by_row[*row_of[i]].add(sample, "ns");
    }
  }
  for (const Collector& row : by_row) out.rows.push_back(row.series());
  for (const auto& [configuration, ceiling] : ceilings) {
    out.ceilings[configuration] = ceiling.series();
  }
  for (const auto& [configuration, twin] : twins) {
    out.twins[configuration] = {twin.first, twin.second.series()};
  }
  return out;
}

std::vector<double> clocks_of(const Series& series) {
  std::vector<double> clocks;
  for (const auto& mhz : series.clock_mhz) {
    if (mhz) clocks.push_back(*mhz);
  }
  return clocks;
}

void fill_hash(BenchRow& row, const Series& series) {
  const bool agree = std::all_of(series.hashes.begin(), series.hashes.end(),
                                 [&](const std::string& h) { return h == series.hashes.front(); });
  row.logits_hash = agree ? series.hashes.front() : "";
}

void fill_row(BenchRow& row, const Series& series, const Series* ceiling,
              const BenchConfiguration& configuration, uint64_t seed) {
  row.samples_ns = series.values;
  const double middle = median(row.samples_ns);
  const measure::Interval ci = measure::bootstrap_median(row.samples_ns, seed);
  row.median_lo_ns = ci.lo;
  row.median_hi_ns = ci.hi;
  row.gbps = static_cast<double>(row.test_bytes) / middle;
  row.gflops = row.test_flops / middle;
  if (row.step_bytes > 0 && configuration.cache_bytes > 0) {
    row.memory = measure::proven_cold(row.step_bytes, configuration.cache_bytes) ? "cold" : "warm";
  }
  if (ceiling) {
    row.peak_gbps = median(ceiling->values);
    if (row.test_bytes > 0) {
      std::vector<double> ratios;
      for (size_t round = 0; round < std::min(ceiling->values.size(), series.values.size());
           ++round) {
        ratios.push_back(static_cast<double>(row.test_bytes) / series.values[round] /
                         ceiling->values[round]);
      }
      row.pct_of_peak = 100 * median(ratios);
    }
  }
  fill_hash(row, series);
  const std::vector<double> clocks = clocks_of(series);
  if (!clocks.empty()) row.clock_mhz = median(clocks);
  const measure::SteadyState steady = measure::find_steady_state(series.values);
  if (steady.steadiness) row.steady = measure::steadiness_name(*steady.steadiness);
  if (steady.steadiness && *steady.steadiness != measure::Steadiness::none) {
    row.steady_ns = median(std::span(series.values).subspan(steady.steady_from()));
  }
  for (const unsigned flags : series.flags) row.n_flagged += (flags & measure::kDoubtful) != 0;
  row.recaptures = series.captures;
}

Gate steady_gate(const BenchRow& row, const Series& series) {
  const measure::SteadyState steady = measure::find_steady_state(series.values);
  Gate gate{.id = "steady", .pass = true, .value = {}, .limit = {}, .why = ""};
  if (!steady.steadiness) {
    gate.why = fmt::format("{}: not judged, {}", row.test_name(), steady.why);
    return gate;
  }
  const double flagged =
      static_cast<double>(row.n_flagged) / static_cast<double>(series.values.size());
  gate.value = flagged;
  gate.limit = measure::kMostFlagged;
  gate.pass = flagged <= measure::kMostFlagged && *steady.steadiness != measure::Steadiness::none;
  gate.why = fmt::format("{}: {}, {}; {} of {} samples flagged", row.test_name(), row.steady,
                         steady.why, row.n_flagged, series.values.size());
  return gate;
}

Gate output_gate(const BenchRow& row) {
  Gate gate{
      .id = "output_hash", .pass = !row.logits_hash.empty(), .value = {}, .limit = {}, .why = ""};
  if (!gate.pass) {
    gate.why = fmt::format("{}: repetitions end with different logits", row.test_name());
  } else if (!row.expected_hash.empty() && row.expected_hash != row.logits_hash) {
    gate.pass = false;
    gate.why = fmt::format("{}: ends with logits {}, the file to check against has {}",
                           row.test_name(), row.logits_hash, row.expected_hash);
  } else {
    gate.why = fmt::format("{}: every repetition ends with logits {}{}", row.test_name(),
                           row.logits_hash, row.expected_hash.empty() ? "" : ", as expected");
  }
  return gate;
}

// Of --check-output with stored logits.
Gate logits_gate(const BenchRow& row, const Fields& sample) {
  const double kl = sample.at("kl").number();
  return {.id = "output_hash",
          .pass = kl <= kMostKl,
          .value = kl,
          .limit = kMostKl,
          .why = fmt::format("{}: {:.2g} nats from the stored logits, the likeliest token is {}",
                             row.test_name(), kl,
                             sample.at("same_top").boolean() ? "the same" : "another")};
}

// Whether the arms of a configuration ran at one clock.
std::optional<Gate> clock_gate(size_t configuration, const std::vector<BenchRow>& rows) {
  const BenchRow *slowest = nullptr, *fastest = nullptr;
  for (const BenchRow& row : rows) {
    if (row.configuration != configuration || !row.clock_mhz) continue;
    if (row.samples_ns.size() < kClockRounds) return {};
    if (!slowest || *row.clock_mhz < *slowest->clock_mhz) slowest = &row;
    if (!fastest || *row.clock_mhz > *fastest->clock_mhz) fastest = &row;
  }
  if (!slowest || *slowest->clock_mhz <= 0) return {};
  const double drift = *fastest->clock_mhz / *slowest->clock_mhz - 1;
  return Gate{.id = "clock_drift",
              .pass = drift <= measure::kClockDrift,
              .value = drift,
              .limit = measure::kClockDrift,
              .why = fmt::format("{} ran at {:.0f} MHz, {} at {:.0f} MHz", slowest->test_name(),
                                 *slowest->clock_mhz, fastest->test_name(), *fastest->clock_mhz)};
}

void add_noise(BenchSummary& out, size_t configuration, size_t row, const std::vector<double>& arm,
               const std::vector<double>& twin) {
  if (arm.size() != twin.size()) {
    fail(ErrorCode::bad_file, "the A/A twin of row {} has {} rounds, the row {}", row, twin.size(),
         arm.size());
  }
  if (arm.size() < measure::kLeastForInterval) return;
  const measure::NoiseFloor noise = measure::noise_floor(arm, twin);
  out.noise.push_back({{"configuration", configuration},
                       {"row", row},
                       {"ratio", noise.ratio},
                       {"ci", {noise.ci.lo, noise.ci.hi}},
                       {"floor", noise.floor}});
  out.gates.push_back(noise_gate(out.rows[row].test_name(), noise));
}

// The same test behind both caches, in the same rounds.
void add_fills(BenchSummary& out) {
  for (const BenchRow& real : out.rows) {
    for (const BenchRow& synthetic : out.rows) {
      const bool same = real.kv_fill == "real" && synthetic.kv_fill == "synthetic" &&
                        real.configuration == synthetic.configuration &&
                        real.test_name() == synthetic.test_name() &&
                        real.samples_ns.size() == synthetic.samples_ns.size();
      if (!same) continue;
      const measure::Comparison c =
          measure::compare_paired(real.samples_ns, synthetic.samples_ns, 0);
      out.fills.push_back({{"configuration", real.configuration},
                           {"test", real.test_name()},
                           {"time_ratio", c.ratio},
                           {"ci", {c.ci.lo, c.ci.hi}},
                           {"rounds", c.n_a}});
    }
  }
}

void add_row_gates(BenchSummary& out, const BenchRow& row, const Series& series,
                   const BenchConfiguration& configuration) {
  if (row.pct_of_peak > 0) {
    out.gates.push_back(ceiling_gate(row.test_name(), row.step_bytes, row.pct_of_peak / 100,
                                     configuration.cache_bytes));
  }
  if (configuration.most_gops && row.gflops > 0) {
    out.gates.push_back(ops_gate(row.test_name(), row.gflops, *configuration.most_gops));
  }
  const bool has_hashes = std::any_of(series.hashes.begin(), series.hashes.end(),
                                      [](const std::string& hash) { return !hash.empty(); });
  if (has_hashes) out.gates.push_back(output_gate(row));  // documents of earlier versions have none
  out.gates.push_back(steady_gate(row, series));
}

}  // namespace

Gate canary_gate(const std::vector<double>& times_us) {
  const measure::IdleVerdict verdict = measure::judge_canary(times_us);
  return {.id = "gpu_idle",
          .pass = verdict.idle,
          .value = verdict.value,
          .limit = verdict.limit,
          .why = verdict.why};
}

Json configuration_json(const BenchConfiguration& c) {
  return {{"device", c.device},
          {"cache_bytes", c.cache_bytes},
          {"most_gops", c.most_gops ? Json(*c.most_gops) : Json(nullptr)},
          {"stop_rule", c.stop_rule},
          {"stop", c.stop},
          {"warm_up", c.warm}};
}

BenchConfiguration configuration_of(const Fields& json) {
  BenchConfiguration c;
  c.device = json.at("device").text();
  c.cache_bytes = json.at("cache_bytes").whole(0);
  c.most_gops = json.number_at("most_gops");
  c.stop_rule = json.text_at("stop_rule");
  c.stop = json.text_at("stop");
  c.warm = !json.has("warm_up") || json.at("warm_up").boolean();
  return c;
}

void fill_gap(BenchRow& row, const Fields& sample) {
  const auto times = [&](const char* name) {
    const Fields list = sample.at(name);
    std::vector<double> out;
    for (size_t i = 0; i < list.size(); ++i) out.push_back(list.at(i).positive());
    if (out.empty() || out.size() > kMostRounds) list.refuse("times of steps");
    return out;
  };
  if (sample.has("waited_ns")) {
    const measure::HostGap gap = measure::host_gap({.waited_ns = times("waited_ns"),
                                                    .ahead_ns = times("ahead_ns"),
                                                    .submit_ns = times("submit_ns")});
    row.gap_share = gap.share;
    row.gap_why = gap.why;
    return;
  }
  const std::vector<double> steps = times("steps_ns"), outside = sample.at("outside_ns").numbers();
  if (outside.size() != steps.size()) sample.at("outside_ns").refuse("one for each step");
  std::vector<double> shares;
  for (size_t i = 0; i < steps.size(); ++i) shares.push_back(outside[i] / steps[i]);
  row.gap_share = std::max(0.0, median(shares));
  row.gap_why = "";
}

std::optional<double> BenchSummary::floor(size_t configuration) const {
  for (const Json& entry : noise) {
    if (entry["configuration"] == configuration) return entry["floor"].get<double>();
  }
  return {};
}

std::vector<std::optional<size_t>> rows_of_samples(const Fields& samples, size_t n_rows) {
  std::vector<std::optional<size_t>> out(samples.size());
  using Key = std::tuple<int64_t, std::string, std::string>;
  std::map<Key, size_t> seen;
  for (size_t i = 0; i < out.size(); ++i) {
    const Fields sample = samples.at(i);
    if (sample.has("row")) {
      out[i] = index_at(sample, "row", n_rows);
      continue;
    }
    const std::string arm = sample.at("arm").text();
    if (arm == "ceiling" || arm == "canary" || sample.has("twin_of")) continue;
    const Key key{sample.whole_at("configuration", 0), arm, sample.text_at("kv_fill")};
    const size_t row = seen.emplace(key, seen.size()).first->second;
    if (row >= n_rows) {
      fail(ErrorCode::bad_file, "{}: arm '{}' belongs to none of the {} rows", sample.path(), arm,
           n_rows);
    }
    out[i] = row;
  }
  return out;
}

std::vector<double> ceilings_of(const Fields& samples) {
  std::vector<double> gbps;
  const size_t n = samples.size();
  for (size_t i = 0; i < n; ++i) {
    const Fields sample = samples.at(i);
    if (sample.at("arm").text() == "ceiling") gbps.push_back(sample.at("gbps").positive());
  }
  return gbps;
}

BenchSummary summarise_bench(std::vector<BenchRow> rows, const Fields& samples,
                             const std::vector<BenchConfiguration>& configurations, uint64_t seed) {
  const Collected collected = collect(samples, rows, configurations.size());
  BenchSummary out;
  out.rows = std::move(rows);
  for (size_t i = 0; i < out.rows.size(); ++i) {
    BenchRow& row = out.rows[i];
    if (collected.rows[i].values.empty()) {
      fail(ErrorCode::bad_file, "summary.rows[{}] ({}) has no samples", i, row.test_name());
    }
    if (row.configuration >= configurations.size()) {
      fail(ErrorCode::bad_file, "summary.rows[{}].configuration: {} of {}", i, row.configuration,
           configurations.size());
    }
    const auto ceiling = collected.ceilings.find(row.configuration);
    fill_row(row, collected.rows[i],
             ceiling == collected.ceilings.end() ? nullptr : &ceiling->second,
             configurations[row.configuration], seed);
    if (const auto gap = collected.gaps.find(i); gap != collected.gaps.end()) {
      fill_gap(row, gap->second);
    }
  }
  for (size_t i = 0; i < out.rows.size(); ++i) {
    add_row_gates(out, out.rows[i], collected.rows[i], configurations[out.rows[i].configuration]);
    if (const auto found = collected.logits.find(i); found != collected.logits.end()) {
      out.gates.push_back(logits_gate(out.rows[i], found->second));
    }
  }
  for (size_t c = 0; c < configurations.size(); ++c) {
    const std::string& device = configurations[c].device;
    const auto ceiling = collected.ceilings.find(c);
    if (ceiling != collected.ceilings.end() && least_ceiling_gbps(device) > 0) {
      out.gates.push_back(least_ceiling_gate(device, median(ceiling->second.values)));
    }
    if (const auto gate = clock_gate(c, out.rows)) out.gates.push_back(*gate);
    if (const auto twin = collected.twins.find(c); twin != collected.twins.end()) {
      const size_t row = twin->second.first;
      add_noise(out, c, row, collected.rows[row].values, twin->second.second.values);
    }
  }
  add_fills(out);
  if (!collected.canary_us.empty()) {
    out.gates.push_back(canary_gate(collected.canary_us));
  }
  return out;
}

BenchDocument bench_document_of(const Json& json) {
  const Fields summary = Fields(json, "").at("summary");
  BenchDocument out;
  if (summary.has("seed")) out.seed = summary.at("seed").unsigned_whole();
  const Fields rows = summary.at("rows");
  for (size_t i = 0; i < rows.size(); ++i) out.rows.push_back(bench_row_inputs(rows.at(i)));
  if (summary.has("configurations")) {
    const Fields configurations = summary.at("configurations");
    for (size_t i = 0; i < configurations.size(); ++i) {
      out.configurations.push_back(configuration_of(configurations.at(i)));
    }
    return out;
  }
  // Before there were configurations, the orders had one entry for each, and rows came in order.
  const size_t n = summary.has("orders") ? std::max<size_t>(1, summary.at("orders").size()) : 1;
  out.configurations.resize(n);
  for (size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].configuration = i * n / out.rows.size();
  }
  return out;
}

}  // namespace fathom::report

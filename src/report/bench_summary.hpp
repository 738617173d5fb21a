// SPDX-License-Identifier: Apache-2.0
// What the samples of a `bench` document say: every figure of its rows and every gate that follows
// from them. `bench` itself and `report` call this one function, so a stored summary that differs
// from it was changed, or made by another version.
//
// Samples, as docs/result_schema.md has them:
//   {arm, kv_fill, configuration, row, round, place, ns, clock_mhz, flags, logits_hash, ...}
//   {arm: "tg128 (A/A)", twin_of: row, ...}   {arm: "ceiling", configuration, round, gbps, ...}
//   {arm: "canary", values}   {arm: "logits", row, kl, same_top}   {arm: "gap", row, ...}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/bench_rows.hpp"
#include "report/result.hpp"

namespace fathom::report {

inline constexpr size_t kMostRounds = 4096;
inline constexpr double kMostKl = 0.01;  // nats between stored logits and ours

// What the rows that shared their rounds have in common.
struct BenchConfiguration {
  std::string device;               // whose memory holds weights and cache
  int64_t cache_bytes = 0;          // in front of it
  std::optional<double> most_gops;  // what its units can do, limits.hpp
  std::string stop_rule, stop;      // declared before; which part of it ended the rounds
  bool warm = true;                 // a warm-up ran before the rounds
};
Json configuration_json(const BenchConfiguration& configuration);
BenchConfiguration configuration_of(const Fields& json);

// gap_share or gap_why of a row, out of its sample of arm "gap".
void fill_gap(BenchRow& row, const Fields& sample);

struct BenchSummary {
  std::vector<BenchRow> rows;
  std::vector<Gate> gates;
  Json noise = Json::array();  // an object for each configuration with a twin
  // For each test behind a real and a synthetic cache: how much longer it takes behind the latter.
  Json fills = Json::array();
  // The noise floor of a configuration; nothing without a twin.
  std::optional<double> floor(size_t configuration) const;
};

// `rows` hold what was run; their samples and figures are filled in. Throws Error{bad_file} for
// samples that do not fit the rows.
BenchSummary summarise_bench(std::vector<BenchRow> rows, const Fields& samples,
                             const std::vector<BenchConfiguration>& configurations, uint64_t seed);

// What `bench` puts under `summary`, of its own and of a stored document alike.
struct BenchDocument {
  std::vector<BenchRow> rows;  // inputs
  std::vector<BenchConfiguration> configurations;
  uint64_t seed = 1;
};
// Of a document of `bench`, also of one without `configurations`, made by earlier versions: then
// figures that need them stay empty. Throws Error{bad_file}.
BenchDocument bench_document_of(const Json& document);

// The row that a sample belongs to, of documents whose samples do not say: rows and arms come in
// the same order.
std::vector<std::optional<size_t>> rows_of_samples(const Fields& samples, size_t n_rows);

// Gate `gpu_idle` of what the canary took (measure/gpu_idle.hpp).
Gate canary_gate(const std::vector<double>& times_us);

// The read ceiling's samples of all configurations, GB/s.
std::vector<double> ceilings_of(const Fields& samples);

}  // namespace fathom::report

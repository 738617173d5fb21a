// SPDX-License-Identifier: Apache-2.0
// The rows of `bench` in llama-bench's five formats. llama-bench's fields come first, under its
// names and in its order, so that its readers work; ours follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/fields.hpp"

namespace fathom::report {

struct BenchRow {
  // What ran.
  std::string build_commit, cpu_info, gpu_info, backends;
  std::string model_filename, model_type;
  int64_t model_size = 0, model_n_params = 0;
  int n_batch = 0, n_ubatch = 0, n_threads = 0;
  std::string type_k, type_v;
  int n_gpu_layers = 0;
  bool use_mmap = true;
  int64_t n_prompt = 0, n_gen = 0, n_depth = 0;  // of each sequence
  int64_t n_seqs = 1;                            // side by side in every step
  std::string test_time;                         // UTC, 2026-01-31T12:00:00Z
  std::vector<double> samples_ns;                // one per repetition, in the order they ran

  // Ours: what else was run,
  std::string isa, kv_fill;  // kv_fill: "real" or "synthetic"
  double cpu_mhz = 0;        // as /proc/cpuinfo has it; 0 = not readable
  uint64_t seed = 0;
  size_t configuration = 0;                // whose rounds it shared
  int64_t test_bytes = 0, step_bytes = 0;  // declared, of the test and of one step of it
  double test_flops = 0;                   // declared
  std::optional<double> gap_share;         // of a watched step, time outside all ops
  std::string gap_why;                     // why there is none
  std::string watermark;                   // why not to trust it, beside every figure; or empty
  std::string expected_hash;               // of --check-output; empty = none
  int64_t graph_captures = 0, graph_replays = 0, kernel_launches = 0;  // of the last repetition

  // and what follows from the samples (bench_summary.hpp).
  double gbps = 0;          // declared bytes over the median time
  double peak_gbps = 0;     // read ceiling, median of the samples between the rounds
  double pct_of_peak = 0;   // median over rounds of the rate over that round's ceiling
  double gflops = 0;        // declared work over the median time
  std::string memory;       // "cold" or "warm"
  std::string logits_hash;  // of the test's last logits; empty when repetitions disagree
  double median_lo_ns = 0, median_hi_ns = 0;  // 95 % interval of the median over the rounds
  std::optional<double> clock_mhz;            // median over the samples
  std::string steady;                         // steadiness_name, empty when not judged
  double steady_ns = 0;                       // median of the steady part; 0 = none
  int64_t n_flagged = 0;                      // samples with a flag that speaks against them
  int64_t recaptures = 0;                     // graphs captured in measured repetitions

  std::string test_name() const;           // "pp512", "tg128 @ d4096", "tg128 x8 @ d2048"
  std::vector<double> samples_ts() const;  // of all sequences together
};

enum class BenchFormat { markdown, csv, json, jsonl, sql };
// Throws Error{usage} that lists the formats.
BenchFormat bench_format_from_name(std::string_view name);

std::string format_bench_rows(const std::vector<BenchRow>& rows, BenchFormat format);
std::vector<std::string> bench_field_names();

// A row as it stands in `json` and in a document.
Json bench_row_json(const BenchRow& row);
// The row back, without what follows from the samples. Throws Error{bad_file}.
BenchRow bench_row_inputs(const Fields& row);

}  // namespace fathom::report

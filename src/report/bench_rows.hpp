// SPDX-License-Identifier: Apache-2.0
// The rows of `bench` in llama-bench's five formats. llama-bench's fields come first, under its
// names and in its order, so that its readers work; ours follow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

  // Ours.
  std::string isa, kv_fill;  // kv_fill: "real" or "synthetic"
  double gbps = 0;           // declared bytes over the median time
  double peak_gbps = 0;      // read ceiling, median of the samples between the rounds
  double pct_of_peak = 0;    // median over rounds of the rate over that round's ceiling
  std::string logits_hash;   // of the test's last logits; empty when repetitions disagree
  double cpu_mhz = 0;        // 0 = not readable
  uint64_t seed = 0;
  int64_t graph_captures = 0, graph_replays = 0, kernel_launches = 0;  // of the last repetition

  std::string test_name() const;           // "pp512", "tg128 @ d4096", "tg128 x8 @ d2048"
  std::vector<double> samples_ts() const;  // of all sequences together
};

enum class BenchFormat { markdown, csv, json, jsonl, sql };
// Throws Error{usage} that lists the formats.
BenchFormat bench_format_from_name(std::string_view name);

std::string format_bench_rows(const std::vector<BenchRow>& rows, BenchFormat format);
std::vector<std::string> bench_field_names();

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// One test of `bench` on an open model: a prompt, text, or both, from a depth to which its
// sequences return before every run.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cli/cache_fill.hpp"
#include "fathom/fathom.hpp"

namespace fathom::cli {

// What lies in the cache when a test begins.
struct Start {
  int64_t depth;
  CacheFill fill;
  auto operator<=>(const Start&) const = default;
};

struct Test {
  int64_t n_prompt;
  int64_t n_gen;
  int64_t n_seqs;
  Start start;
};

class TestArm {
 public:
  // REQUIRES: as many sequences as the test has, at its depth.
  TestArm(Model& model, std::span<Sequence> sequences, const Test& test, int n_ubatch,
          uint64_t seed);

  // Nanoseconds of the whole test. Error{cancelled}; Error{bad_file} when its logits are not
  // finite.
  double run();

  // What is known of a run beside its time, in the order in which they ran.
  struct Run {
    std::string logits_hash;  // of the last logits of all sequences
    StepCounters counters;
  };
  const std::vector<Run>& runs() const { return runs_; }
  void forget_runs() { runs_.clear(); }

  // Where the time of a few decode steps at the test's depth goes that no op takes, never of a
  // measured run: a sample that report::fill_gap() reads. On the host, steps watched op by op; on a
  // device, steps that wait for the host and steps submitted ahead (measure/host_gap.hpp).
  Json gap_sample();

  const Test& test() const { return test_; }
  bool is_decode() const { return test_.n_prompt == 0; }
  int64_t bytes() const { return bytes_; }            // declared, of the whole test
  int64_t step_bytes() const { return step_bytes_; }  // of its first step
  double flops() const { return flops_; }             // of the whole test
  // Of the first sequence at the end of the last run; kept from here on.
  void keep_logits() { keeps_logits_ = true; }
  std::span<const float> logits() const { return logits_; }

 private:
  Json host_gap_sample();
  Json device_gap_sample();
  void batch_of(std::span<const int32_t> tokens);
  int64_t batch_bytes(int64_t n_past) const;
  void add_cost();
  void rewind();
  void check_run() const;
  void step(std::span<const int32_t> tokens);

  Model& model_;
  std::span<Sequence> sequences_;
  Test test_;
  std::vector<int32_t> tokens_;  // of the prompt, then [n_gen, n_seqs]
  std::vector<Model::BatchEntry> batch_;
  int n_ubatch_;
  int64_t bytes_ = 0;
  int64_t step_bytes_ = 0;
  double flops_ = 0;
  std::vector<Run> runs_;
  bool keeps_logits_ = false;
  std::vector<float> logits_;
};

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Owns what a step works on (activations, logits, scratch, the arrays of the StepState) and runs
// it. Everything is allocated once; a step allocates nothing.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "device/owned.hpp"
#include "model/step_plan.hpp"

namespace fathom::engine {

struct StepRow {
  int32_t token, pos, slot;
};

class StepRunner {
 public:
  struct Config {
    const Backend* backend;
    StepLimits limits;
    int64_t d_model, d_ff, q_dim, rope_dim, vocab_size;
    int64_t workspace_bytes;
    ThreadPool* pool;
    const CpuKernels* cpu;
  };
  static int64_t planned_bytes(const Config& config);
  explicit StepRunner(const Config& config);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Runs rows through the model. `out_rows` are the indices of those whose logits are wanted,
  // ascending, at most limits.max_out. Rows of one slot stand together in ascending position.
  // `cancel` is looked at before each op; Error{cancelled} leaves the rows' cache entries void.
  void run(const StepPlan& plan, std::span<const StepRow> rows, std::span<const int32_t> out_rows,
           const int32_t* page_table, int32_t max_pages, const std::atomic<bool>* cancel = nullptr);
  // Logits of other rows of that step.
  void run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                const std::atomic<bool>* cancel = nullptr);
  int32_t sample(const StepPlan& plan, const SampleArgs& args);
  // Synthetic keys and values for tokens [begin, end) of every layer; `pages` are the sequence's.
  void fill_cache(const StepPlan& plan, const int32_t* pages, int64_t begin, int64_t end,
                  uint64_t seed);

  std::span<const float> logits(int64_t row) const;
  uint64_t epoch() const { return epoch_; }  // one more with every run
  const StepShape& shape() const { return shape_; }
  void set_sink(OpScopeSink* sink) { exec_.sink = sink; }

 private:
  void set_out_rows(std::span<const int32_t> out_rows);

  Config config_;
  Buffer memory_;
  StepBuffers buffers_{};
  int32_t* token_ = nullptr;  // arrays of the StepState, on the device
  int32_t* pos_ = nullptr;
  int32_t* slot_ = nullptr;
  int32_t* out_row_ = nullptr;
  std::vector<int32_t> host_;  // [3, max_rows] their next contents
  ExecContext exec_;
  StepState state_{};
  StepShape shape_{};
  uint64_t epoch_ = 0;
};

}  // namespace fathom::engine

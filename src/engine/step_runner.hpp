// SPDX-License-Identifier: Apache-2.0
// Owns what a step works on (activations, logits, scratch, the arrays of the StepState) and runs
// it, op by op or as a graph. Everything is allocated once; a step allocates nothing. Where the
// device has memory of its own, a step is one copy there, the ops, and a copy of the logits back
// once somebody asks for them.
#pragma once

#include <atomic>
#include <span>

#include "device/owned.hpp"
#include "engine/step_graph.hpp"
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
    void* stream;  // of all work and copies
  };
  // On the device.
  static int64_t planned_bytes(const Config& config);
  explicit StepRunner(const Config& config);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Submits rows to the model. `out_rows` are the indices of those whose logits are wanted,
  // ascending, at most limits.max_out. Rows of one slot stand together in ascending position.
  // `cancel` is looked at before each op; Error{cancelled} leaves the rows' cache entries void.
  void run(const StepPlan& plan, std::span<const StepRow> rows, std::span<const int32_t> out_rows,
           const int32_t* page_table, int32_t max_pages, const std::atomic<bool>* cancel = nullptr);
  // The same for the logits of other rows of that step.
  void run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                const std::atomic<bool>* cancel = nullptr);
  // Draws from a row of logits; `args` needs no logits, token or static arguments.
  int32_t sample(const StepPlan& plan, int64_t row, SampleArgs args);
  // Synthetic keys and values for tokens [begin, end) of every layer; `pages` are the sequence's.
  void fill_cache(const StepPlan& plan, const int32_t* pages, int64_t begin, int64_t end,
                  uint64_t seed);

  // Returns when the device has done what was submitted; throws what went wrong there.
  void synchronize();

  // Rows as in out_rows of the last run or run_head, to be read until the next.
  std::span<const float> logits(int64_t row);
  uint64_t epoch() const { return epoch_; }  // one more with every run
  const StepShape& shape() const { return shape_; }
  // With a sink, steps run op by op.
  void set_sink(OpScopeSink* sink) { exec_.sink = sink; }
  int64_t captures() const { return graph_.n_captures(); }  // must not grow with the depth
  int64_t replays() const { return graph_.n_replays(); }

 private:
  bool replayable(std::span<const StepRow> rows, size_t n_out) const;
  void stage(std::span<const StepRow> rows, std::span<const int32_t> out_rows, int64_t n_padded);
  void copy_arrays(int64_t begin, int64_t n);
  StepContext context(const StepPlan& plan, const std::atomic<bool>* cancel);

  Config config_;
  const DeviceApi& device_;
  Buffer memory_;
  StepBuffers buffers_{};
  // token, pos, slot and out_row of the StepState, each as long as the step has rows, one behind
  // the other; on the host the same memory or a page-locked copy.
  int32_t* arrays_ = nullptr;  // [4 * max_rows]
  int32_t* host_arrays_ = nullptr;
  float* host_logits_ = nullptr;  // [max_out, vocab_size] likewise
  HostBuffer host_memory_;
  bool submitted_ = false;       // work that nobody has waited for; it may still read host_arrays_
  bool logits_on_host_ = false;  // of this step
  StepGraph graph_;
  ExecContext exec_;
  StepState state_{};
  StepShape shape_{};
  uint64_t epoch_ = 0;
};

}  // namespace fathom::engine

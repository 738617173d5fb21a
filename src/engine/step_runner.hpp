// SPDX-License-Identifier: Apache-2.0
// Owns what a step works on (activations, logits, scratch, the arrays of the StepState) and runs
// it, op by op or as a graph. Everything is allocated once; a step allocates nothing. Where the
// device has memory of its own, host and device speak through page-locked memory: a step fetches
// there what it is about and leaves the tokens that it drew, in one of kStepRing places, so that
// the next step is submitted while this one runs. Logits are copied once somebody asks for them.
#pragma once

#include <atomic>
#include <span>

#include "device/owned.hpp"
#include "engine/step_graph.hpp"
#include "model/step_plan.hpp"
#include "tensor/step_ring.hpp"

namespace fathom::engine {

struct StepRow {
  int32_t token;  // kNewestToken = the one drawn last for the slot, which the host need not know
  int32_t pos, slot;
};
inline constexpr int32_t kNewestToken = -1;

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
  // `draws`, where draws_in_steps(): none, or what is drawn from each of out_rows.
  void run(const StepPlan& plan, std::span<const StepRow> rows, std::span<const int32_t> out_rows,
           const int32_t* page_table, int32_t max_pages, std::span<const DrawRequest> draws = {},
           const std::atomic<bool>* cancel = nullptr);
  // The same for the logits of other rows of that step.
  void run_head(const StepPlan& plan, std::span<const int32_t> out_rows,
                const std::atomic<bool>* cancel = nullptr);
  // Draws from a row of logits; `args` needs no logits, token or static arguments.
  // REQUIRES: not draws_in_steps().
  int32_t sample(const StepPlan& plan, int64_t row, SampleArgs args);

  // Whether the device draws tokens, in the steps themselves.
  bool draws_in_steps() const { return config_.backend->ops->draw != nullptr; }
  // Draws from a row of the last step's logits once more, or for the first time.
  void draw(const StepPlan& plan, int64_t row, const DrawRequest& request);
  // What was drawn from row `row` of the logits of the step that `epoch` counted; waits for it.
  // REQUIRES: one of the last kStepRing steps.
  const Drawn& drawn(uint64_t epoch, int64_t row);
  // Tokens of a slot that no step brought, for penalties to look back at. Waits for nothing.
  void write_history(int slot, int64_t begin, std::span<const int32_t> tokens);
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
  // Told of the ops of steps while they are captured, which go on to run as graphs; what was
  // captured before is captured anew.
  void set_capture_sink(OpScopeSink* sink);
  void set_graph_replay(bool replays) { graphs_ = replays; }
  int64_t captures() const { return graph_.n_captures(); }  // must not grow with the depth
  int64_t replays() const { return graph_.n_replays(); }
  // Kernels launched one by one, by this process: a replayed step adds none.
  int64_t kernel_launches() const {
    return device_.kernel_launches ? device_.kernel_launches() : 0;
  }

 private:
  bool replayable(std::span<const StepRow> rows, size_t n_out) const;
  void stage(std::span<const StepRow> rows, std::span<const int32_t> out_rows, int64_t n_padded);
  void stage_draws(std::span<const DrawRequest> draws);
  std::byte* inbox_place(uint64_t epoch) const;
  DrawArgs draw_args(const StepPlan& plan, int64_t row, int64_t n_rows) const;
  StepContext context(const StepPlan& plan, const std::atomic<bool>* cancel);
  void submit(const StepContext& step, bool replays);

  Config config_;
  const DeviceApi& device_;
  Buffer memory_;
  StepBuffers buffers_{};
  // token, pos, slot and out_row of the StepState, each as long as the step has rows, one behind
  // the other; on the host the same memory or a page-locked copy.
  int32_t* arrays_ = nullptr;  // [4 * max_rows]
  int32_t* host_arrays_ = nullptr;
  float* host_logits_ = nullptr;  // [max_out, vocab_size] likewise
  // Of a device with memory of its own.
  DrawRequest* requests_ = nullptr;  // [max_draws]
  int64_t* n_steps_ = nullptr;       // [1] begun: what epoch_ is on the host
  int32_t* newest_ = nullptr;        // [n_slots]
  int32_t* history_ = nullptr;       // [n_slots, n_ctx]
  std::byte* inbox_ = nullptr;       // [kStepRing] places, on the host like the next
  Drawn* drawn_ = nullptr;           // [kStepRing, max_draws]
  Event done_[kStepRing];            // the newest step that has used a place
  HostBuffer host_memory_;
  bool submitted_ = false;       // work that nobody has waited for
  bool logits_on_host_ = false;  // of this step
  StepGraph graph_;
  OpScopeSink* capture_sink_ = nullptr;
  bool graphs_ = true;
  ExecContext exec_;
  StepState state_{};
  StepShape shape_{};
  int64_t n_draws_ = 0;  // of this step
  uint64_t epoch_ = 0;
};

}  // namespace fathom::engine

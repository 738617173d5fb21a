// SPDX-License-Identifier: Apache-2.0
// A model as a program whose steps are attributed: one sequence or several at each depth that step
// from there again and again, what the ops declare, and the peaks of the machine that it runs on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cli/cache_fill.hpp"
#include "cli/command.hpp"
#include "cli/gpu_clock.hpp"
#include "cli/read_ceiling.hpp"
#include "fathom/fathom.hpp"
#include "measure/cached_bandwidth.hpp"
#include "measure/decomposition.hpp"
#include "measure/device_flops.hpp"
#include "measure/flop_peak.hpp"
#include "measure/observation.hpp"
#include "measure/op_trace.hpp"
#include "tensor/step_ring.hpp"

namespace fathom::cli {

class ModelProgram : public measure::StepProgram {
 public:
  // What is in the caches: at each depth `n_parallel` sequences of tokens of their own.
  struct Filling {
    std::vector<int64_t> depths;
    int n_parallel;
    CacheFill fill;
    uint64_t seed;
  };
  // Fills the caches. The model needs all these sequences and a context that holds the deepest and
  // a token more. Throws Error{bad_file} when a step's logits are not finite.
  ModelProgram(Model& model, const Filling& filling, const std::function<void(double)>& progress);

  // One token of each sequence, from exactly depths[i] tokens; on the host with a greedy draw after
  // it: what a token takes.
  void step(size_t depth) override;
  int n_ahead() const override { return model_.info().in_host_memory ? 0 : kStepRing; }
  void wait() override { model_.wait(); }
  // A device's steps are named when they are captured (Model::set_capture_scope_sink).
  void watch(OpScopeSink* scopes) override {
    if (model_.info().in_host_memory) model_.set_op_scope_sink(scopes);
  }
  double clock_speed() override;

  // Of the ops of one step, in their order.
  std::vector<measure::CostRecorder::Entry> costs(size_t depth);
  // Of the logits of all sequences after one step, watched or not.
  uint64_t logits_hash(size_t depth, OpScopeSink* watcher);

 private:
  void fill(int64_t depth, int parallel, const Filling& filling,
            const std::function<void(double)>& progress);
  std::span<Sequence> sequences(size_t depth);

  Model& model_;
  std::vector<int64_t> depths_;
  size_t n_parallel_;
  // [depth][n_parallel], the second what the step of the depth appends.
  std::vector<Sequence> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<Model::BatchEntry> batch_;
  std::optional<GpuClock> gpu_clock_;  // of a device
};

// Of a program its first depth and its last.
class AnchorsOf : public measure::StepProgram {
 public:
  AnchorsOf(measure::StepProgram& program, size_t n_depths)
      : program_(program), last_(n_depths - 1) {}
  void step(size_t depth) override { program_.step(depth == 0 ? 0 : last_); }
  void watch(OpScopeSink* scopes) override { program_.watch(scopes); }
  int n_ahead() const override { return program_.n_ahead(); }
  void wait() override { program_.wait(); }
  double clock_speed() override { return program_.clock_speed(); }

 private:
  measure::StepProgram& program_;
  size_t last_;
};

// The programs of several models as one: the depths of the first, then those of the next.
class ProgramSeries : public measure::StepProgram {
 public:
  ProgramSeries(std::vector<measure::StepProgram*> programs, size_t n_depths)
      : programs_(std::move(programs)), n_depths_(n_depths) {}
  void step(size_t depth) override { programs_[depth / n_depths_]->step(depth % n_depths_); }
  void watch(OpScopeSink* scopes) override {
    for (measure::StepProgram* program : programs_) program->watch(scopes);
  }
  int n_ahead() const override { return programs_.front()->n_ahead(); }
  void wait() override {
    for (measure::StepProgram* program : programs_) program->wait();
  }
  double clock_speed() override { return programs_.front()->clock_speed(); }

 private:
  std::vector<measure::StepProgram*> programs_;
  size_t n_depths_;  // of each
};

// Of a step: sums over the launches of each op.
std::vector<measure::OpCost> op_costs(const std::vector<measure::CostRecorder::Entry>& entries);
int64_t kv_bytes_of(const std::vector<measure::CostRecorder::Entry>& entries);

// The peaks of the memory and the units that a model runs on, sampled between the rounds.
class PeakSampler {
 public:
  PeakSampler(const ModelInfo& info, const measure::Machine& machine, const CommonFlags& common);

  void sample();
  // Medians of the samples. memory_gbps is 0 where the device has no read stream.
  measure::Peaks peaks() const;
  const std::vector<double>& memory_gbps() const { return memory_gbps_; }

 private:
  ReadCeiling memory_;
  std::unique_ptr<measure::ReadBandwidth> host_cache_;
  std::unique_ptr<measure::CachedBandwidth> device_cache_;
  std::unique_ptr<measure::FlopPeak> flops_;
  std::unique_ptr<measure::DeviceFlops> device_flops_;
  int64_t cache_bytes_;
  std::vector<double> memory_gbps_, cache_gbps_, gflops_, f16_gflops_, int8_gops_;
};

}  // namespace fathom::cli

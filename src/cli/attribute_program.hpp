// SPDX-License-Identifier: Apache-2.0
// A model as a program whose steps are attributed: a sequence at each depth that steps from there
// again and again, what its ops declare, and the peaks of the machine that it runs on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cli/cache_fill.hpp"
#include "cli/command.hpp"
#include "cli/read_ceiling.hpp"
#include "fathom/fathom.hpp"
#include "measure/cached_bandwidth.hpp"
#include "measure/decomposition.hpp"
#include "measure/flop_peak.hpp"
#include "measure/observation.hpp"
#include "measure/op_trace.hpp"
#include "tensor/step_ring.hpp"

namespace fathom::cli {

class ModelProgram : public measure::StepProgram {
 public:
  // Fills the caches. The model needs a sequence for each depth and a context that holds the
  // deepest and a token more. Throws Error{bad_file} when a step's logits are not finite.
  ModelProgram(Model& model, const std::vector<int64_t>& depths, CacheFill fill, uint64_t seed,
               const std::function<void(double)>& progress);

  // From exactly depths[i] tokens; on the host with a greedy draw after it: what a token takes.
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
  // Of the logits after one step, watched or not.
  uint64_t logits_hash(size_t depth, OpScopeSink* watcher);

 private:
  Model& model_;
  std::vector<int64_t> depths_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> tokens_;  // that the step of a depth appends
};

// The programs of two models as one: the depths of the first, then those of the second.
class ProgramPair : public measure::StepProgram {
 public:
  ProgramPair(measure::StepProgram& first, measure::StepProgram& second, size_t n_first)
      : first_(first), second_(second), n_first_(n_first) {}
  void step(size_t depth) override {
    depth < n_first_ ? first_.step(depth) : second_.step(depth - n_first_);
  }
  void watch(OpScopeSink* scopes) override {
    first_.watch(scopes);
    second_.watch(scopes);
  }
  int n_ahead() const override { return first_.n_ahead(); }
  void wait() override {
    first_.wait();
    second_.wait();
  }
  double clock_speed() override { return first_.clock_speed(); }

 private:
  measure::StepProgram& first_;
  measure::StepProgram& second_;
  size_t n_first_;
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
  int64_t cache_bytes_;
  std::vector<double> memory_gbps_, cache_gbps_, gflops_;
};

}  // namespace fathom::cli

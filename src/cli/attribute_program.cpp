// SPDX-License-Identifier: Apache-2.0
// The steps of the sequences, and the samplers of the peaks.
#include "cli/attribute_program.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/finite.hpp"
#include "base/fnv1a.hpp"
#include "cli/watched_model.hpp"
#include "measure/core_clock.hpp"
#include "measure/statistics.hpp"

namespace fathom::cli {
namespace {

constexpr double kCacheSeconds = 0.02;
constexpr double kFlopSeconds = 0.01;

double median_or_zero(const std::vector<double>& values) {
  return values.empty() ? 0 : measure::median(values);
}

}  // namespace

ModelProgram::ModelProgram(Model& model, const Filling& filling,
                           const std::function<void(double)>& progress)
    : model_(model),
      depths_(filling.depths),
      n_parallel_(static_cast<size_t>(filling.n_parallel)),
      batch_(n_parallel_) {
  if (!model.info().in_host_memory) gpu_clock_.emplace();
  for (size_t i = 0; i < depths_.size(); ++i) {
    for (int parallel = 0; parallel < filling.n_parallel; ++parallel) {
      fill(depths_[i], parallel, filling, progress);
    }
    step(i);
    for (const Sequence& sequence : sequences(i)) {
      if (all_finite(sequence.logits())) continue;
      fail(ErrorCode::bad_file,
           "the logits at position {} are not finite, so nothing is measured: check the model file",
           depths_[i]);
    }
  }
}

void ModelProgram::fill(int64_t depth, int parallel, const Filling& filling,
                        const std::function<void(double)>& progress) {
  const double n = static_cast<double>(depths_.size() * n_parallel_);
  const double done = static_cast<double>(sequences_.size());
  const uint64_t seed = filling.seed + static_cast<uint64_t>(parallel);
  sequences_.push_back(model_.sequence());
  tokens_.push_back(random_tokens(model_, depth + 1, seed).back());
  fill_to_depth(model_, sequences_.back(), depth, filling.fill, seed,
                [&](double share) { progress((done + share) / n); });
}

std::span<Sequence> ModelProgram::sequences(size_t depth) {
  return std::span(sequences_).subspan(depth * n_parallel_, n_parallel_);
}

void ModelProgram::step(size_t depth) {
  const std::span<Sequence> all = sequences(depth);
  const int32_t* const tokens = &tokens_[depth * n_parallel_];
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].truncate(depths_[depth]);
    batch_[i] = {&all[i], tokens[i]};
  }
  model_.submit(batch_, LogitsMode::last);
  for (Sequence& sequence : all) {
    // Of a device, the step is one graph; the draw would be a launch beside it.
    if (model_.info().in_host_memory) sequence.sample(SamplerParams{});
    FATHOM_CHECK(sequence.size() == depths_[depth] + 1, "a step did not start at its anchor");
  }
}

double ModelProgram::clock_speed() {
  return gpu_clock_ ? gpu_clock_->mhz() : measure::core_clock_mhz();
}

std::vector<measure::CostRecorder::Entry> ModelProgram::costs(size_t depth) {
  measure::CostRecorder recorder;
  const Watched watched(model_, &recorder);
  step(depth);
  return recorder.entries();
}

uint64_t ModelProgram::logits_hash(size_t depth, OpScopeSink* watcher) {
  const Watched watched(model_, model_.info().in_host_memory ? watcher : nullptr);
  step(depth);
  Fnv1a hash;
  for (const Sequence& sequence : sequences(depth)) {
    for (const float value : sequence.logits()) hash.add(std::bit_cast<uint32_t>(value));
  }
  return hash.value();
}

std::vector<measure::OpCost> op_costs(const std::vector<measure::CostRecorder::Entry>& entries) {
  std::vector<measure::OpCost> costs;
  for (const measure::CostRecorder::Entry& entry : entries) {
    auto found = std::find_if(costs.begin(), costs.end(),
                              [&](const measure::OpCost& cost) { return cost.op == entry.op; });
    if (found == costs.end()) found = costs.insert(costs.end(), {entry.op, 0, 0});
    found->bytes += entry.cost.memory_bytes();
    found->flops += entry.cost.flops_useful;
  }
  return costs;
}

int64_t kv_bytes_of(const std::vector<measure::CostRecorder::Entry>& entries) {
  int64_t bytes = 0;
  for (const measure::CostRecorder::Entry& entry : entries) bytes += entry.cost.kv_bytes;
  return bytes;
}

PeakSampler::PeakSampler(const ModelInfo& info, const measure::Machine& machine,
                         const CommonFlags& common)
    : memory_(info, common), cache_bytes_(cache_bytes_of(info, machine, common)) {
  if (info.in_host_memory) {
    host_cache_ = std::make_unique<measure::ReadBandwidth>(
        measure::ReadBandwidthOptions{.threads = info.threads, .buffer_bytes = cache_bytes_ / 2});
    flops_ = std::make_unique<measure::FlopPeak>(info.threads);
  } else {
    const DeviceApi& device = *device_of(common);
    if (device.read_cached) device_cache_ = std::make_unique<measure::CachedBandwidth>(device);
    if (device.arithmetic_stream) device_flops_ = std::make_unique<measure::DeviceFlops>(device);
  }
}

void PeakSampler::sample() {
  if (memory_) memory_gbps_.push_back(memory_.sample_gbps());
  if (host_cache_) cache_gbps_.push_back(host_cache_->sample_gbps(kCacheSeconds));
  if (device_cache_) cache_gbps_.push_back(device_cache_->sample_gbps());
  if (flops_) gflops_.push_back(flops_->sample_gflops(kFlopSeconds));
  if (!device_flops_) return;
  gflops_.push_back(device_flops_->sample_gflops(Arithmetic::f32));
  f16_gflops_.push_back(device_flops_->sample_gflops(Arithmetic::f16_tensor));
  int8_gops_.push_back(device_flops_->sample_gflops(Arithmetic::int8_tensor));
}

measure::Peaks PeakSampler::peaks() const {
  measure::Peaks peaks{.memory_gbps = median_or_zero(memory_gbps_),
                       .cache_gbps = {},
                       .gflops = {},
                       .cache_bytes = cache_bytes_,
                       .f16_tensor_gflops = {},
                       .int8_tensor_gops = {}};
  if (!cache_gbps_.empty()) peaks.cache_gbps = measure::median(cache_gbps_);
  if (!gflops_.empty()) peaks.gflops = measure::median(gflops_);
  if (!f16_gflops_.empty()) peaks.f16_tensor_gflops = measure::median(f16_gflops_);
  if (!int8_gops_.empty()) peaks.int8_tensor_gops = measure::median(int8_gops_);
  return peaks;
}

}  // namespace fathom::cli

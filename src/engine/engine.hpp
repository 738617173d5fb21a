// SPDX-License-Identifier: Apache-2.0
// A loaded model: the file, its weights as packed for a backend, the KV cache, the thread pool and
// the step. What the machine must have is planned and refused before anything is loaded.
#pragma once

#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/thread_pool.hpp"
#include "cache/gqa/gqa_cache.hpp"
#include "engine/step_runner.hpp"
#include "engine/varied_backend.hpp"
#include "fathom/types.hpp"
#include "gguf/gguf_file.hpp"
#include "model/model_config.hpp"
#include "model/weights.hpp"
#include "text/tokenizer.hpp"

namespace fathom::engine {

class Engine {
 public:
  // Throws Error{bad_file, unsupported, usage, unavailable, out_of_memory}.
  static std::shared_ptr<Engine> open(const std::string& path, const OpenOptions& options);

  const ModelInfo& info() const { return info_; }
  const MemoryPlan& memory() const { return memory_; }
  const ModelConfig& config() const { return config_; }
  const StepPlan& plan() const { return plan_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t n_ctx() const { return limits_.n_ctx; }
  const StepLimits& limits() const { return limits_; }

  GqaCache& cache() { return *cache_; }
  StepRunner& runner() { return *runner_; }
  const DeviceApi& device() const { return *backend_->device; }
  void* stream() const { return stream_.get(); }

  // Submits one step over the cache; keeps the embedding's mapped pages few.
  void run(std::span<const StepRow> rows, std::span<const int32_t> out_rows,
           std::span<const DrawRequest> draws = {}, const std::atomic<bool>* cancel = nullptr);

  void fill_cache(int slot, int64_t begin, int64_t end, uint64_t seed);

  Cost step_cost(int64_t n_past, int64_t n_rows, int64_t n_out) const;

 private:
  Engine(const std::string& path, const OpenOptions& options);
  void plan_memory(const OpenOptions& options, const GqaCacheConfig& cache_config);
  StepRunner::Config runner_config();
  void describe(const OpenOptions& options);

  gguf::File file_;
  ModelConfig config_;
  std::unique_ptr<VariedBackend> varied_;  // where a variant was asked for
  const Backend* backend_;
  const CpuKernels* cpu_;
  std::unique_ptr<ThreadPool> pool_;
  Stream stream_;  // the one on which everything of this engine runs
  StepLimits limits_{};
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<GqaCache> cache_;
  StepPlan plan_;
  std::unique_ptr<StepRunner> runner_;
  ModelInfo info_;
  MemoryPlan memory_;
  bool drops_pages_ = false;  // look-ups map pages of the file that nobody else needs
  int64_t rows_since_drop_ = 0;
};

}  // namespace fathom::engine

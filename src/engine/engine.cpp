// SPDX-License-Identifier: Apache-2.0
// Opening a model: choosing backend, context, batch and threads, planning the memory, loading.
#include "engine/engine.hpp"

#include <algorithm>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"
#include "engine/bind_model.hpp"
#include "engine/cache_plan.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "model/file_type.hpp"

namespace fathom::engine {
namespace {

constexpr int64_t kDefaultLogitsRows = 8;
constexpr int kMaxUbatch = 1 << 16;
constexpr int64_t kMaxContext = 1 << 24;
// Rows of the embedding table looked up before its mapped pages are given back; a look-up maps
// up to 64 KB.
constexpr int64_t kRowsPerDrop = 64;

// The instruction set's functions for the CPU backend; null for others.
const CpuKernels* select_kernels(const Backend& backend, const OpenOptions& options) {
  if (&backend == &cpu_backend()) return &select_cpu_kernels(options.isa);
  if (options.isa.empty()) return nullptr;
  fail(ErrorCode::usage, "isa '{}' is for backend cpu; the backend is {}", options.isa,
       backend.name);
}

int64_t choose_context(const ModelConfig& config, const OpenOptions& options) {
  const Log log(options.log);
  const int64_t n_ctx = options.n_ctx ? options.n_ctx : default_context(config);
  require_context(config, n_ctx);
  if (n_ctx > config.n_ctx_train) {
    log(LogLevel::warning,
        "a context of {} tokens is longer than the {} the model was trained for: expect poor text "
        "beyond it",
        n_ctx, config.n_ctx_train);
  }
  return n_ctx;
}

StepLimits choose_limits(const ModelConfig& config, const OpenOptions& options,
                         const Backend& backend) {
  if (options.n_ubatch < 0 || options.n_ubatch > kMaxUbatch) {
    fail(ErrorCode::usage,
         "ubatch: found {} rows, expected 1 to {}, or 0 for what suits the backend",
         options.n_ubatch, kMaxUbatch);
  }
  const int n_ubatch = options.n_ubatch ? options.n_ubatch : backend.default_ubatch;
  if (options.max_logits_rows < 0 || options.max_logits_rows > 1 << 16) {
    fail(ErrorCode::usage, "logits rows: found {}, expected 0 to {}", options.max_logits_rows,
         1 << 16);
  }
  const int64_t n_ctx = choose_context(config, options);
  const int64_t max_rows = std::max<int64_t>(n_ubatch, options.max_sequences);
  const int64_t max_out =
      std::max<int64_t>(options.max_logits_rows ? options.max_logits_rows : kDefaultLogitsRows,
                        options.max_sequences);
  const int64_t n_slots = std::max(1, options.max_sequences);
  return {std::min(max_rows, n_ctx * n_slots), max_out, n_ctx, n_slots};
}

Activations choose_activations(const OpenOptions& options) {
  if (options.activations == ActivationType::int8) return Activations::int8;
  if (options.activations == ActivationType::f32) return Activations::f32;
  fail(ErrorCode::usage, "activations: found {}, expected ActivationType int8 or f32",
       static_cast<int>(options.activations));
}

}  // namespace

std::shared_ptr<Engine> Engine::open(const std::string& path, const OpenOptions& options) {
  return std::shared_ptr<Engine>(new Engine(path, options));
}

Engine::Engine(const std::string& path, const OpenOptions& options)
    : file_(gguf::File::open(path)),
      config_(read_model_config(file_)),
      varied_(vary_backend(select_backend(options.backend, options.backend_dir), options.variant)),
      backend_(varied_ ? &varied_->backend : &select_backend(options.backend, options.backend_dir)),
      cpu_(select_kernels(*backend_, options)),
      limits_(choose_limits(config_, options, *backend_)) {
  const Activations activations = choose_activations(options);
  const GqaCacheConfig cache_config = plan_cache(config_, limits_.n_ctx, options);
  GqaCache::validate(cache_config);
  BoundModel bound = bind_model(file_, config_, *backend_, activations);
  tokenizer_ = std::move(bound.tokenizer);
  weights_ = std::move(bound.weights);
  const auto no_cache = [&](int) {
    return KvLayerView{GqaCache::geometry(cache_config), nullptr, nullptr};
  };
  plan_ = plan_step(config_, *weights_, limits_, *backend_->ops, no_cache);
  plan_memory(options, cache_config);

  pool_ = std::make_unique<ThreadPool>(ThreadPool::choose_threads(options.threads));
  stream_ = make_stream(*backend_->device);
  weights_->load(*pool_, stream_.get(), [&](double fraction) {
    if (options.cancel_loading && options.cancel_loading->load()) {
      fail(ErrorCode::cancelled, "interrupted");
    }
    if (options.on_progress) options.on_progress(fraction);
  });
  cache_ = std::make_unique<GqaCache>(*backend_->device, cache_config, stream_.get());
  plan_ = plan_step(config_, *weights_, limits_, *backend_->ops,
                    [&](int layer) { return cache_->layer(layer); });
  runner_ = std::make_unique<StepRunner>(runner_config());
  drops_pages_ = backend_->device->shares_host_memory && !backend_->keeps_file_layout;
  describe(options);
}

StepRunner::Config Engine::runner_config() {
  return {.backend = backend_,
          .limits = limits_,
          .d_model = config_.d_model,
          .d_ff = config_.d_ff,
          .q_dim = config_.q_dim(),
          .rope_dim = config_.rope_dim,
          .vocab_size = config_.vocab_size,
          .workspace_bytes = workspace_bytes(plan_, *backend_->ops),
          .pool = pool_.get(),
          .cpu = cpu_,
          .stream = stream_.get()};
}

void Engine::plan_memory(const OpenOptions&, const GqaCacheConfig& cache_config) {
  memory_.file_bytes = static_cast<int64_t>(file_.tensor_bytes());
  memory_.weights_bytes = weights_->packed_bytes();
  memory_.cache_bytes = GqaCache::planned_bytes(cache_config);
  memory_.scratch_bytes = StepRunner::planned_bytes(runner_config());
  const DeviceInfo device = backend_->device->info();
  memory_.available_bytes = device.free_bytes;
  memory_.kv_token_bytes = config_.n_layers * GqaCache::geometry(cache_config).token_bytes();
  if (memory_.total_bytes() <= memory_.available_bytes) return;
  const auto megabytes = [](int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; };
  fail(
      ErrorCode::out_of_memory,
      "{} needs {} MB{} (weights {}, cache {} for {} tokens, scratch {}), and {} MB are available: "
      "use a smaller context (-c), a smaller KV type (-ctk q8_0) or a smaller model",
      file_.path(), megabytes(memory_.total_bytes()),
      backend_->device->shares_host_memory ? "" : " on " + device.name,
      megabytes(memory_.weights_bytes), megabytes(memory_.cache_bytes),
      limits_.n_ctx * cache_config.max_sequences, megabytes(memory_.scratch_bytes),
      megabytes(memory_.available_bytes));
}

void Engine::describe(const OpenOptions& options) {
  const DeviceInfo device = backend_->device->info();
  info_.path = file_.path();
  info_.name = config_.name;
  info_.architecture = config_.family->architecture;
  info_.file_type = file_type_name(file_);
  info_.n_params = weights_->n_params();
  info_.vocab_size = config_.vocab_size;
  info_.n_layers = config_.n_layers;
  info_.d_model = static_cast<int>(config_.d_model);
  info_.d_ff = static_cast<int>(config_.d_ff);
  info_.n_heads = config_.n_heads;
  info_.n_kv_heads = config_.n_kv_heads;
  info_.head_dim = config_.head_dim;
  info_.n_ctx_train = config_.n_ctx_train;
  info_.n_ctx = limits_.n_ctx;
  info_.max_rows = limits_.max_rows;
  info_.bos_token = tokenizer_->bos();
  info_.eos_token = tokenizer_->eos();
  info_.backend = backend_->name;
  info_.isa = cpu_ ? cpu_->isa : device.isa;
  info_.device = device.name;
  info_.in_host_memory = backend_->device->shares_host_memory;
  info_.threads = pool_->size();
  info_.kv_type = options.kv_type;
}

void Engine::run(std::span<const StepRow> rows, std::span<const int32_t> out_rows,
                 std::span<const DrawRequest> draws, const std::atomic<bool>* cancel) {
  runner_->run(plan_, rows, out_rows, cache_->page_table(), cache_->max_pages(), draws, cancel);
  rows_since_drop_ += static_cast<int64_t>(rows.size());
  if (rows_since_drop_ >= kRowsPerDrop && drops_pages_) {
    weights_->drop_embedding_pages();
    rows_since_drop_ = 0;
  }
}

void Engine::fill_cache(int slot, int64_t begin, int64_t end, uint64_t seed) {
  const int32_t* pages = cache_->page_table() + int64_t{slot} * cache_->max_pages();
  runner_->fill_cache(plan_, pages, begin, end, seed);
}

Cost Engine::step_cost(int64_t n_past, int64_t n_rows, int64_t n_out) const {
  if (n_past < 0 || n_past > kMaxContext || n_rows < 1 || n_rows > kMaxUbatch) {
    fail(ErrorCode::usage, "step cost: found {} tokens after {}, expected 1 to {} after 0 to {}",
         n_rows, n_past, kMaxUbatch, kMaxContext);
  }
  const StepShape shape{.n_rows = n_rows,
                        .n_out = n_out,
                        .kv_tokens = n_past + n_rows,
                        .attended_pairs = n_rows * n_past + n_rows * (n_rows + 1) / 2};
  return fathom::step_cost(plan_, shape);
}

}  // namespace fathom::engine

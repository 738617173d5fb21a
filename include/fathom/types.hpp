// SPDX-License-Identifier: Apache-2.0
// Options, figures and results of the public API.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/log.hpp"
#include "fathom/op_scope.hpp"
#include "fathom/sampling.hpp"

namespace fathom {

enum class KvType { f16, bf16, f32, q8_0, fp8_e4m3 };

// How products treat activations: int8 is the fast path; f32 dequantises the weights at load and is
// for comparisons.
enum class ActivationType { int8, f32 };

struct OpenOptions {
  std::string backend = "cpu";  // "cpu", "reference" or the name of a backend library
  std::string backend_dir;      // where backend libraries are looked for first
  std::string isa;    // CPU only: "scalar", "avx2", "avx512"; empty = best of this machine
  int threads = 0;    // 0 = the cores this process may use; at most 16, or 4 a core if more
  int64_t n_ctx = 0;  // tokens a sequence can hold; 0 = min(trained, 4096)
  KvType kv_type = KvType::f16;
  int page_tokens = 0;  // tokens of a cache page: 16, 64 or 256; 0 = one page per sequence
  // Most rows of one step; a longer prompt runs in chunks. 0 = what suits the backend: 512, on CUDA
  // 2,048.
  int n_ubatch = 0;
  int max_sequences = 1;
  int max_logits_rows = 0;  // rows of logits kept at a time; 0 = max_sequences, at least 8
  ActivationType activations = ActivationType::int8;
  // For measurements: a variant of an op that runs in its place, by the name that `fathom probe`
  // lists; empty = none.
  std::string variant;
  LogSink* log = nullptr;                             // must outlive the model
  std::function<void(double fraction)> on_progress;   // while weights load, 0 to 1
  const std::atomic<bool>* cancel_loading = nullptr;  // true: open() throws Error{cancelled}
};

struct ModelInfo {
  std::string path, name, architecture, file_type;  // file_type: "Q4_K_M" as the file declares it
  int64_t n_params = 0, vocab_size = 0;
  int n_layers = 0, d_model = 0, d_ff = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t n_ctx_train = 0, n_ctx = 0;
  int64_t max_rows = 0;  // of one step, as n_ubatch and max_sequences make it
  int32_t bos_token = -1, eos_token = -1;
  std::string backend, isa, device;  // what runs it
  bool in_host_memory = true;        // weights and cache; else they lie on the device
  int threads = 0;
  KvType kv_type = KvType::f16;
};

// What the model needs, known before its weights are loaded.
struct MemoryPlan {
  int64_t file_bytes = 0;       // tensor bytes of the file
  int64_t weights_bytes = 0;    // as packed for the backend
  int64_t cache_bytes = 0;      // KV cache of all sequences
  int64_t scratch_bytes = 0;    // activations, logits, workspace
  int64_t available_bytes = 0;  // on the device when it was asked
  int64_t kv_token_bytes = 0;   // cache bytes of one token
  int64_t total_bytes() const { return weights_bytes + cache_bytes + scratch_bytes; }
};

// How decode steps reached the device since the model was opened: a backend with graphs captures
// one per batch bucket, without logits, with them and with tokens drawn from them, and replays it
// at any depth and with any parameters of sampling. 0 on other backends.
struct StepCounters {
  int64_t graph_captures = 0;
  int64_t graph_replays = 0;
  int64_t kernel_launches = 0;  // one by one, of the whole process: a replayed step adds none
};

struct TokenizeOptions {
  bool add_special = true;     // BOS (and EOS) as the file says
  bool parse_special = false;  // text such as <|im_start|> becomes a control token
};

// Which rows of a prefill get logits.
enum class LogitsMode { skip, last, all };

// Rows of logits, in order: rows.size() / vocab_size rows, the first for `first_position`.
using LogitsVisitor = std::function<void(int64_t first_position, std::span<const float> rows)>;

struct RunStats {
  int64_t prompt_tokens = 0;  // through prefill()
  double prefill_s = 0;
  int64_t decode_tokens = 0;  // through step() and batches
  double decode_s = 0;        // of the steps; in generate(), from the first token out to the last
  double first_token_s = 0;   // generate(): from its start to the first sampled token
  Cost decode_cost;           // sum over the decode steps
  uint64_t logits_hash = 0;   // over the bits of every row of logits that sampling looked at
};

enum class StopReason { end_of_generation, stop_string, max_tokens, context_full, callback };

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1 = until an end-of-generation token or the context is full
  SamplerParams sampler;
  std::vector<LogitBias> logit_bias;
  std::vector<std::string> stop;  // generation ends before any of these appears in the text
  bool ignore_end_of_generation = false;
  bool emit_special = false;                           // control tokens appear in the text
  std::function<bool(std::string_view text)> on_text;  // complete UTF-8; false ends generation
  std::function<void(int64_t done, int64_t total)> on_prefill;
  const std::atomic<bool>* cancel = nullptr;  // true: generate() throws Error{cancelled}
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> tokens;  // as sampled, without the end-of-generation token
  StopReason reason = StopReason::max_tokens;
};

}  // namespace fathom

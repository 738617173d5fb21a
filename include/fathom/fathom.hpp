// SPDX-License-Identifier: Apache-2.0
// The public C++ API: open a model, tokenize, run sequences, sample, generate.
//
//   fathom::Model model = fathom::Model::open("model.gguf");
//   fathom::Sequence sequence = model.sequence();
//   fathom::GenerateOptions options;
//   options.on_text = [](std::string_view text) { std::cout << text; return true; };
//   sequence.generate(model.tokenize("Once upon a time"), options);
//
// Every function may throw fathom::Error. A Model and its Sequences belong to one thread at a
// time; only the cancel flag may be set from others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/api.hpp"
#include "fathom/error.hpp"
#include "fathom/log.hpp"
#include "fathom/op_scope.hpp"
#include "fathom/sampling.hpp"

namespace fathom {

enum class KvType { f16, bf16, f32, q8_0 };

// How products treat activations: int8 is the fast path; f32 dequantises the weights at load and is
// for comparisons.
enum class ActivationType { int8, f32 };

struct OpenOptions {
  std::string backend = "cpu";  // "cpu", "reference" or the name of a backend library
  std::string backend_dir;      // where backend libraries are looked for first
  std::string isa;    // CPU only: "scalar", "avx2", "avx512"; empty = best of this machine
  int threads = 0;    // 0 = the cores this process may use
  int64_t n_ctx = 0;  // tokens a sequence can hold; 0 = min(trained, 4096)
  KvType kv_type = KvType::f16;
  int page_tokens = 0;  // tokens of a cache page: 16, 64 or 256; 0 = one page per sequence
  int n_ubatch = 512;   // most rows of one step; a longer prompt runs in chunks
  int max_sequences = 1;
  int max_logits_rows = 0;  // rows of logits kept at a time; 0 = max_sequences, at least 8
  ActivationType activations = ActivationType::int8;
  LogSink* log = nullptr;                             // must outlive the model
  std::function<void(double fraction)> on_progress;   // while weights load, 0 to 1
  const std::atomic<bool>* cancel_loading = nullptr;  // true: open() throws Error{cancelled}
};

struct ModelInfo {
  std::string path, name, architecture, file_type;  // file_type: "Q4_K_M" as the file declares it
  int64_t n_params = 0, vocab_size = 0;
  int n_layers = 0, d_model = 0, d_ff = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t n_ctx_train = 0, n_ctx = 0;
  int32_t bos_token = -1, eos_token = -1;
  std::string backend, isa, device;  // what runs it
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
  double decode_s = 0;
  double first_token_s = 0;  // generate(): from its start to the first sampled token
  Cost decode_cost;          // sum over the decode steps
  uint64_t logits_hash = 0;  // over the bits of every row of logits that sampling looked at
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

class Sequence;

class FATHOM_API Model {
 public:
  // Checks the file and the memory plan, then loads. Errors: bad_file, unsupported, out_of_memory,
  // unavailable, usage.
  static Model open(const std::string& path, const OpenOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelInfo& info() const;
  const MemoryPlan& memory() const;

  std::vector<int32_t> tokenize(std::string_view text, const TokenizeOptions& options = {}) const;
  std::string detokenize(std::span<const int32_t> tokens, bool special = false) const;
  std::string piece(int32_t token, bool special = true) const;  // its bytes, maybe not whole UTF-8
  bool is_end_of_generation(int32_t token) const;

  // A new, empty sequence in one of the max_sequences slots; Error{usage} when all are taken. It
  // keeps the model's data alive.
  Sequence sequence();

  // One token for each of several sequences, in one pass over the weights. The sequences must be
  // distinct and of this model. Afterwards each has its logits.
  struct BatchEntry {
    Sequence* sequence;
    int32_t token;
  };
  void step(std::span<const BatchEntry> batch, LogitsMode logits = LogitsMode::last);

  // What one step must move and compute: n_rows tokens of one sequence (1 = decode) after n_past.
  Cost step_cost(int64_t n_past, int64_t n_rows = 1) const;

  // Told of every op of every step; null = nobody. It must outlive its use.
  void set_op_scope_sink(OpScopeSink* sink);

 private:
  friend class Sequence;
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class FATHOM_API Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();  // frees its slot

  // Appends tokens. `all` needs a visitor; `last` leaves logits(). Error{usage} when they do not
  // fit into n_ctx (nothing is appended then), Error{cancelled} between chunks.
  void prefill(std::span<const int32_t> tokens, LogitsMode logits = LogitsMode::last,
               const LogitsVisitor& visitor = {}, const std::atomic<bool>* cancel = nullptr);
  // Appends one token.
  void step(int32_t token, LogitsMode logits = LogitsMode::last);
  // Forgets all but the first n_tokens. Logits are gone.
  void truncate(int64_t n_tokens);

  std::span<const float> logits() const;  // of the newest token; empty when none were asked for
  // Draws the token that follows; the random stream is keyed by (seed, size()).
  int32_t sample(const SamplerParams& params, std::span<const LogitBias> logit_bias = {});

  // prefill, then sample, emit and step until an end.
  GenerateResult generate(std::span<const int32_t> prompt, const GenerateOptions& options);

  int64_t size() const;       // tokens so far
  int64_t remaining() const;  // tokens that still fit
  std::span<const int32_t> tokens() const;

  const RunStats& stats() const;  // also after an Error{cancelled}
  void reset_stats();

 private:
  friend class Model;
  struct Impl;
  explicit Sequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fathom

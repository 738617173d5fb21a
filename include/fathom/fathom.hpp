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
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/api.hpp"
#include "fathom/error.hpp"
#include "fathom/log.hpp"
#include "fathom/op_scope.hpp"
#include "fathom/types.hpp"

namespace fathom {

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
  // The same, but on a device it returns once the step is on its way, a few steps ahead of the one
  // that runs; the sequences' logits and tokens are those of a step that is done. Their stats()
  // count the tokens, and only the time in this call. What goes wrong on the device is thrown by a
  // later call that waits.
  void submit(std::span<const BatchEntry> batch, LogitsMode logits = LogitsMode::last);
  // Returns when all that was submitted is done.
  void wait();

  // What one step must move and compute: n_rows tokens of one sequence (1 = decode, at most 2^16)
  // after n_past (at most 2^24); Error{usage} for others.
  Cost step_cost(int64_t n_past, int64_t n_rows = 1) const;

  StepCounters step_counters() const;

  // Told of every op of every step, which then runs op by op; null = nobody. It must outlive its
  // use.
  void set_op_scope_sink(OpScopeSink* sink);

  // Told of every op of a step while the backend records it as a graph; replays tell nobody. It is
  // to outlive the model. Steps run as they do without it; those recorded before are recorded anew
  // when they run next.
  void set_capture_scope_sink(OpScopeSink* sink);

  // Whether decode steps may run as graphs where the backend has them, as they do at first.
  // Without, their kernels are launched one by one, with the same results.
  void set_graph_replay(bool replays);

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
  // fit into n_ctx (nothing is appended then), Error{cancelled} within an op's time of the flag:
  // the chunks done so far stay, the one that was running does not.
  void prefill(std::span<const int32_t> tokens, LogitsMode logits = LogitsMode::last,
               const LogitsVisitor& visitor = {}, const std::atomic<bool>* cancel = nullptr);
  // For measurements at depth without a prefill of that depth: appends n_tokens whose keys and
  // values are random with the spread of the tokens so far (at least one; a few hundred make it
  // good). tokens() repeats those. Logits after it mean nothing but cost what real ones do.
  // Error{usage} as for prefill.
  void fill_synthetic(int64_t n_tokens, uint64_t seed = 1);
  // Appends one token.
  void step(int32_t token, LogitsMode logits = LogitsMode::last);
  // Forgets all but the first n_tokens. Logits are gone.
  void truncate(int64_t n_tokens);

  // Of the newest token; empty when none were asked for, or once another step of the model has run.
  std::span<const float> logits() const;
  // Draws the token that follows; the random stream is keyed by (seed, size()).
  int32_t sample(const SamplerParams& params, std::span<const LogitBias> logit_bias = {});

  // prefill, then sample, emit and step until an end. Error{usage} for wrong options or a prompt
  // that does not fit leaves the sequence as it was.
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

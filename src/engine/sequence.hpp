// SPDX-License-Identifier: Apache-2.0
// One timeline of tokens: a slot of the cache and what happened in it. A DecodeBatch advances
// several by one token in one pass over the weights.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.hpp"

namespace fathom::engine {

class Sequence {
 public:
  explicit Sequence(std::shared_ptr<Engine> engine);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // See Sequence in include/fathom/fathom.hpp.
  void prefill(std::span<const int32_t> tokens, LogitsMode mode, const LogitsVisitor& visitor = {},
               const std::atomic<bool>* cancel = nullptr,
               const std::function<void(int64_t done, int64_t total)>& progress = {});
  void fill_synthetic(int64_t n_tokens, uint64_t seed);
  void step(int32_t token, LogitsMode mode = LogitsMode::last);
  void truncate(int64_t n_tokens);
  std::span<const float> logits() const;
  int32_t sample(const SamplerParams& params, std::span<const LogitBias> logit_bias);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t remaining() const { return engine_->n_ctx() - size(); }
  std::span<const int32_t> tokens() const { return tokens_; }
  RunStats& stats() { return stats_; }
  Engine& engine() { return *engine_; }

 private:
  friend class DecodeBatch;
  void require_tokens(std::span<const int32_t> tokens) const;
  void prefill_chunk(std::span<const int32_t> chunk, std::span<const int32_t> out_rows,
                     const std::atomic<bool>* cancel);
  void visit_logits(int64_t n_rows, const LogitsVisitor& visitor, const std::atomic<bool>* cancel);

  std::shared_ptr<Engine> engine_;
  int slot_;
  std::vector<int32_t> tokens_;
  std::vector<StepRow> rows_;      // of a prefill chunk
  std::vector<int32_t> out_rows_;  // of a block of logits
  // Where the newest token's logits are: a row of the runner, as long as its epoch stands.
  uint64_t logits_epoch_ = 0;
  int64_t logits_row_ = -1;
  RunStats stats_;
};

class DecodeBatch {
 public:
  struct Entry {
    Sequence* sequence;
    int32_t token;
  };
  // REQUIRES: distinct sequences of one engine.
  static void step(Engine& engine, std::span<const Entry> entries, LogitsMode mode);
};

}  // namespace fathom::engine

// SPDX-License-Identifier: Apache-2.0
// One timeline of tokens: a slot of the cache and what happened in it. A DecodeBatch advances
// several by one token in one pass over the weights.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/owned.hpp"
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
  bool has_logits() const;  // whether logits() are there, without fetching them
  // Where the device draws tokens, steps draw as the last call asked, so that the next one with the
  // same arguments finds its token there.
  int32_t sample(const SamplerParams& params, std::span<const LogitBias> logit_bias);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t remaining() const { return engine_->n_ctx() - size(); }
  std::span<const int32_t> tokens() const { return tokens_; }
  RunStats& stats() { return stats_; }
  Engine& engine() { return *engine_; }

 private:
  friend class DecodeBatch;
  friend class DecodeLoop;
  void require_tokens(std::span<const int32_t> tokens) const;
  void require_logits() const;
  bool expects_draws() const;
  void expect_draws(const SamplerParams& params, std::span<const LogitBias> logit_bias);
  DrawRequest draw_request(int64_t position) const;
  int32_t accept(const Drawn& drawn);
  void prefill_chunk(std::span<const int32_t> chunk, std::span<const int32_t> out_rows,
                     const std::atomic<bool>* cancel);
  void visit_logits(int64_t n_rows, const LogitsVisitor& visitor, const std::atomic<bool>* cancel);

  std::shared_ptr<Engine> engine_;
  int slot_;
  std::vector<int32_t> tokens_;
  std::vector<StepRow> rows_;      // of a prefill chunk
  std::vector<int32_t> out_rows_;  // of a block of logits
  std::vector<DrawRequest> draws_;
  // Where the newest token's logits are: a row of the runner, as long as its epoch stands.
  uint64_t logits_epoch_ = 0;
  int64_t logits_row_ = -1;
  bool drawn_ = false;  // a token has been drawn from them as sampler_ says
  // How tokens are drawn in steps: as sample() was last asked to.
  std::optional<SamplerParams> sampler_;
  std::vector<LogitBias> logit_bias_;
  Buffer bias_memory_;  // logit_bias_ on the device, by token
  RunStats stats_;
};

class DecodeBatch {
 public:
  struct Entry {
    Sequence* sequence;
    int32_t token;
  };
  enum class Returns { when_done, when_submitted };
  // REQUIRES: distinct sequences of one engine. A step that is not waited for is one of those that
  // the runner's ring holds at once; its time is not in stats().
  static void step(Engine& engine, std::span<const Entry> entries, LogitsMode mode,
                   Returns returns = Returns::when_done);
};

// The decode of one sequence whose tokens are all drawn alike. Where the device draws them, the
// step that brings the newest token is submitted before the host knows that token, and the device
// does not wait for the host.
class DecodeLoop {
 public:
  // The sequence has logits. At most max_steps tokens are appended.
  DecodeLoop(Sequence& sequence, const SamplerParams& params, std::span<const LogitBias> logit_bias,
             int64_t max_steps);
  // Forgets what was submitted ahead.
  ~DecodeLoop();
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;

  // The first token; each later call appends the token of the call before.
  int32_t next();

 private:
  struct Submitted {
    uint64_t epoch;
    Cost cost;
  };
  void submit(int32_t token);
  void forget_submitted();
  int32_t next_of_device();

  Sequence& sequence_;
  const SamplerParams& params_;
  std::span<const LogitBias> logit_bias_;
  int64_t steps_left_;
  int32_t token_ = -1;  // of the last call
  bool started_ = false;
  Submitted submitted_[2] = {};  // oldest first
  int n_submitted_ = 0;
};

}  // namespace fathom::engine

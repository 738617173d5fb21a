// SPDX-License-Identifier: Apache-2.0
// Prefill in chunks, single steps and batches: what is checked before the cache changes, and what
// is counted after.
#include "engine/sequence.hpp"

#include <algorithm>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "base/finite.hpp"
#include "engine/logits_hash.hpp"
#include "engine/loop_clock.hpp"

namespace fathom::engine {

Sequence::Sequence(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), slot_(engine_->cache().open_slot()) {
  tokens_.reserve(engine_->n_ctx());
  rows_.reserve(engine_->limits().max_rows);
  out_rows_.reserve(engine_->limits().max_out);
}

Sequence::~Sequence() { engine_->cache().close_slot(slot_); }

void Sequence::require_tokens(std::span<const int32_t> tokens) const {
  const int64_t vocab_size = engine_->config().vocab_size;
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      fail(ErrorCode::usage, "token id {} is outside the vocabulary of {}", token, vocab_size);
    }
  }
}

void Sequence::prefill(std::span<const int32_t> tokens, LogitsMode mode,
                       const LogitsVisitor& visitor, const std::atomic<bool>* cancel,
                       const std::function<void(int64_t, int64_t)>& progress) {
  if (tokens.empty()) return;
  if (mode == LogitsMode::all && !visitor) {
    fail(ErrorCode::usage, "prefill with logits of all rows needs a visitor");
  }
  require_tokens(tokens);
  const auto start = Clock::now();
  const int64_t before = size();
  const int64_t total = static_cast<int64_t>(tokens.size());
  engine_->cache().append(slot_, total);
  logits_row_ = -1;
  int64_t done = 0;
  try {
    while (done < total) {
      stop_if_cancelled(cancel);
      const int64_t n = std::min(engine_->limits().max_rows, total - done);
      const bool newest = done + n == total;
      const int32_t last_row = static_cast<int32_t>(n - 1);
      const bool wants_last = mode == LogitsMode::last && newest;
      prefill_chunk(tokens.subspan(done, n), {&last_row, wants_last ? 1u : 0u}, cancel);
      if (mode == LogitsMode::all) visit_logits(n, visitor, cancel);
      if (wants_last) {
        logits_row_ = 0;
        logits_epoch_ = engine_->runner().epoch();
      }
      done += n;
      if (progress) progress(done, total);
    }
    engine_->runner().synchronize();
  } catch (...) {
    truncate(before + done);  // a chunk counts once all of it is done
    throw;
  }
  stats_.prompt_tokens += size() - before;
  stats_.prefill_s += seconds_since(start);
}

void Sequence::prefill_chunk(std::span<const int32_t> chunk, std::span<const int32_t> out_rows,
                             const std::atomic<bool>* cancel) {
  rows_.clear();
  for (const int32_t token : chunk) {
    const int64_t pos = size() + static_cast<int64_t>(rows_.size());
    rows_.push_back({token, static_cast<int32_t>(pos), slot_});
  }
  engine_->run(rows_, out_rows, cancel);
  tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
}

void Sequence::visit_logits(int64_t n_rows, const LogitsVisitor& visitor,
                            const std::atomic<bool>* cancel) {
  StepRunner& runner = engine_->runner();
  const int64_t first_position = size() - n_rows;
  for (int64_t begin = 0; begin < n_rows; begin += engine_->limits().max_out) {
    const int64_t n = std::min(engine_->limits().max_out, n_rows - begin);
    out_rows_.clear();
    for (int64_t i = 0; i < n; ++i) out_rows_.push_back(static_cast<int32_t>(begin + i));
    runner.run_head(engine_->plan(), out_rows_, cancel);
    const std::span<const float> first = runner.logits(0);
    visitor(first_position + begin, {first.data(), first.size() * static_cast<size_t>(n)});
  }
}

void Sequence::fill_synthetic(int64_t n_tokens, uint64_t seed) {
  if (n_tokens <= 0) return;
  if (size() == 0) {
    fail(ErrorCode::usage, "a synthetic fill takes its spread from tokens: prefill some first");
  }
  engine_->cache().append(slot_, n_tokens);
  logits_row_ = -1;
  engine_->fill_cache(slot_, size(), size() + n_tokens, seed);
  const int64_t real = size();
  for (int64_t i = 0; i < n_tokens; ++i) tokens_.push_back(tokens_[i % real]);
}

void Sequence::step(int32_t token, LogitsMode mode) {
  const DecodeBatch::Entry entry{this, token};
  DecodeBatch::step(*engine_, {&entry, 1}, mode);
}

void Sequence::truncate(int64_t n_tokens) {
  engine_->cache().truncate(slot_, n_tokens);
  tokens_.resize(n_tokens);
  logits_row_ = -1;
}

std::span<const float> Sequence::logits() const {
  if (logits_row_ < 0 || logits_epoch_ != engine_->runner().epoch()) return {};
  return engine_->runner().logits(logits_row_);
}

int32_t Sequence::sample(const SamplerParams& params, std::span<const LogitBias> logit_bias) {
  const std::span<const float> row = logits();
  if (row.empty()) {
    fail(ErrorCode::usage,
         "no logits to sample from: step with LogitsMode::last and sample before the model's next "
         "step");
  }
  validate(params);
  if (!all_finite(row)) {
    fail(ErrorCode::bad_file, "the logits at position {} are not finite: check the model file",
         size() - 1);
  }
  stats_.logits_hash = logits_hash(row, stats_.logits_hash);
  SampleArgs args{};
  args.params = &params;
  args.logit_bias = logit_bias;
  args.history = tokens_;
  args.position = size();
  return engine_->runner().sample(engine_->plan(), logits_row_, args);
}

void DecodeBatch::step(Engine& engine, std::span<const Entry> entries, LogitsMode mode) {
  if (entries.empty()) return;
  const StepLimits& limits = engine.limits();
  const int64_t n = static_cast<int64_t>(entries.size());
  if (n > limits.max_rows || (mode == LogitsMode::last && n > limits.max_out)) {
    fail(ErrorCode::usage, "a batch of {} sequences: this model was opened for at most {}", n,
         std::min(limits.max_rows, limits.max_out));
  }
  if (mode == LogitsMode::all) {
    fail(ErrorCode::usage, "a step has one row per sequence: use LogitsMode::last or skip");
  }
  for (int64_t i = 0; i < n; ++i) {
    const Entry& entry = entries[i];
    if (&entry.sequence->engine() != &engine) {
      fail(ErrorCode::usage, "a batch holds sequences of one model only");
    }
    for (int64_t j = 0; j < i; ++j) {
      if (entries[j].sequence == entry.sequence) {
        fail(ErrorCode::usage, "a batch holds each sequence once; found one twice");
      }
    }
    entry.sequence->require_tokens({&entry.token, 1});
  }

  const auto start = Clock::now();
  // The first sequence's arrays serve the batch; both were reserved when it was made.
  std::vector<StepRow>& rows = entries[0].sequence->rows_;
  std::vector<int32_t>& out_rows = entries[0].sequence->out_rows_;
  rows.clear();
  out_rows.clear();
  int64_t appended = 0;
  try {
    for (const Entry& entry : entries) {
      Sequence& s = *entry.sequence;
      engine.cache().append(s.slot_, 1);
      ++appended;
      if (mode == LogitsMode::last) out_rows.push_back(static_cast<int32_t>(rows.size()));
      rows.push_back({entry.token, static_cast<int32_t>(s.size()), s.slot_});
    }
    engine.run(rows, out_rows);
    engine.runner().synchronize();
  } catch (...) {
    for (const Entry& entry : entries.first(appended)) {
      engine.cache().truncate(entry.sequence->slot_, entry.sequence->size());
    }
    throw;
  }
  const double seconds = seconds_since(start);
  const Cost cost = step_cost(engine.plan(), engine.runner().shape());
  for (int64_t i = 0; i < n; ++i) {
    Sequence& s = *entries[i].sequence;
    s.tokens_.push_back(entries[i].token);
    s.logits_row_ = mode == LogitsMode::last ? i : -1;
    s.logits_epoch_ = engine.runner().epoch();
    s.stats_.decode_tokens += 1;
    s.stats_.decode_s += seconds;
    s.stats_.decode_cost += cost;
  }
}

}  // namespace fathom::engine

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
namespace {

[[noreturn]] void fail_not_finite(int64_t position) {
  fail(ErrorCode::bad_file, "the logits at position {} are not finite: check the model file",
       position);
}

}  // namespace

Sequence::Sequence(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), slot_(engine_->cache().open_slot()) {
  tokens_.reserve(engine_->n_ctx());
  rows_.reserve(engine_->limits().max_rows);
  out_rows_.reserve(engine_->limits().max_out);
  draws_.reserve(engine_->limits().max_draws());
}

Sequence::~Sequence() {
  engine_->cache().close_slot(slot_);
  if (!bias_memory_) return;
  try {
    engine_->runner().synchronize();  // a step that was given up may read it
  } catch (const Error&) {
    // What is wrong with the device was said when a step met it.
  }
}

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
        drawn_ = false;
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
  engine_->run(rows_, out_rows, {}, cancel);
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
  engine_->runner().write_history(slot_, real, tokens().subspan(real));
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

bool Sequence::has_logits() const {
  return logits_row_ >= 0 && logits_epoch_ == engine_->runner().epoch();
}

std::span<const float> Sequence::logits() const {
  if (!has_logits()) return {};
  return engine_->runner().logits(logits_row_);
}

void Sequence::require_logits() const {
  if (has_logits()) return;
  fail(ErrorCode::usage,
       "no logits to sample from: step with LogitsMode::last and sample before the model's next "
       "step");
}

int32_t Sequence::sample(const SamplerParams& params, std::span<const LogitBias> logit_bias) {
  require_logits();
  validate(params);
  StepRunner& runner = engine_->runner();
  if (runner.draws_in_steps()) {
    expect_draws(params, logit_bias);
    if (!drawn_) runner.draw(engine_->plan(), logits_row_, draw_request(size()));
    drawn_ = true;
    return accept(runner.drawn(logits_epoch_, logits_row_));
  }
  const std::span<const float> row = logits();
  if (!all_finite(row)) fail_not_finite(size() - 1);
  stats_.logits_hash = logits_hash(row, stats_.logits_hash);
  SampleArgs args{};
  args.params = &params;
  args.logit_bias = logit_bias;
  args.history = tokens_;
  args.position = size();
  return runner.sample(engine_->plan(), logits_row_, args);
}

bool Sequence::expects_draws() const {
  return sampler_.has_value() && engine_->runner().draws_in_steps();
}

// The biases go to the device when they change, those of one token together.
void Sequence::expect_draws(const SamplerParams& params, std::span<const LogitBias> logit_bias) {
  const bool same_bias =
      std::equal(logit_bias.begin(), logit_bias.end(), logit_bias_.begin(), logit_bias_.end());
  if (sampler_ && *sampler_ == params && same_bias) return;
  if (!same_bias) {
    validate(logit_bias, engine_->config().vocab_size);
    engine_->runner().synchronize();  // steps under way read the old ones
    sampler_.reset();
    logit_bias_.assign(logit_bias.begin(), logit_bias.end());
    const int64_t bytes = static_cast<int64_t>(logit_bias.size_bytes());
    if (bytes > bias_memory_.get().bytes) bias_memory_ = make_buffer(engine_->device(), bytes);
    std::vector<LogitBias> by_token = logit_bias_;
    std::stable_sort(by_token.begin(), by_token.end(),
                     [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
    if (bytes > 0) {
      engine_->device().copy_to_device(bias_memory_.get().data, by_token.data(), bytes,
                                       engine_->stream());
    }
  }
  sampler_ = params;
  drawn_ = false;
}

DrawRequest Sequence::draw_request(int64_t position) const {
  return {.seed = sampler_->seed,
          .position = position,
          .bias = reinterpret_cast<const LogitBias*>(bias_memory_.get().data),
          .n_bias = static_cast<int32_t>(logit_bias_.size()),
          .slot = slot_,
          .temperature = sampler_->temperature,
          .top_p = sampler_->top_p,
          .min_p = sampler_->min_p,
          .repeat_penalty = sampler_->repeat_penalty,
          .top_k = sampler_->top_k,
          .repeat_last_n = sampler_->repeat_last_n,
          .is_wanted = 1};
}

// What the device drew from the newest token's logits, and says of them.
int32_t Sequence::accept(const Drawn& drawn) {
  if (drawn.any_not_finite) fail_not_finite(size() - 1);
  const auto vocab_size = static_cast<uint64_t>(engine_->config().vocab_size);
  stats_.logits_hash = fold_logits(stats_.logits_hash, drawn.logits_sum, vocab_size);
  if (drawn.status != DrawStatus::ok) fail_without_finite_logit(drawn.largest);
  return drawn.token;
}

void DecodeBatch::step(Engine& engine, std::span<const Entry> entries, LogitsMode mode,
                       Returns returns) {
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
  std::vector<DrawRequest>& draws = entries[0].sequence->draws_;
  rows.clear();
  out_rows.clear();
  draws.clear();
  const bool draws_any = mode == LogitsMode::last &&
                         std::any_of(entries.begin(), entries.end(),
                                     [](const Entry& e) { return e.sequence->expects_draws(); });
  int64_t appended = 0;
  try {
    for (const Entry& entry : entries) {
      Sequence& s = *entry.sequence;
      engine.cache().append(s.slot_, 1);
      ++appended;
      if (mode == LogitsMode::last) out_rows.push_back(static_cast<int32_t>(rows.size()));
      if (draws_any) {
        draws.push_back(s.expects_draws() ? s.draw_request(s.size() + 1) : DrawRequest{});
      }
      rows.push_back({entry.token, static_cast<int32_t>(s.size()), s.slot_});
    }
    engine.run(rows, out_rows, draws);
    if (returns == Returns::when_done) engine.runner().synchronize();
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
    s.drawn_ = draws_any && s.expects_draws();
    s.logits_epoch_ = engine.runner().epoch();
    s.stats_.decode_tokens += 1;
    s.stats_.decode_s += seconds;
    s.stats_.decode_cost += cost;
  }
}

DecodeLoop::DecodeLoop(Sequence& sequence, const SamplerParams& params,
                       std::span<const LogitBias> logit_bias, int64_t max_steps)
    : sequence_(sequence), params_(params), logit_bias_(logit_bias), steps_left_(max_steps) {}

DecodeLoop::~DecodeLoop() {
  if (n_submitted_ > 0) forget_submitted();
}

// What such a step leaves in the cache lies behind the sequence's tokens, where the next one
// writes.
void DecodeLoop::forget_submitted() {
  sequence_.engine_->cache().truncate(sequence_.slot_, sequence_.size());
  steps_left_ += n_submitted_;
  n_submitted_ = 0;
}

int32_t DecodeLoop::next() {
  if (!started_) {
    started_ = true;
  } else if (sequence_.engine_->runner().draws_in_steps()) {
    return token_ = next_of_device();
  } else {
    sequence_.step(token_);
  }
  return token_ = sequence_.sample(params_, logit_bias_);
}

// The step that appends `token` and draws the one after it.
void DecodeLoop::submit(int32_t token) {
  Sequence& s = sequence_;
  Engine& engine = *s.engine_;
  const int64_t pos = s.size() + n_submitted_;
  engine.cache().append(s.slot_, 1);
  ++n_submitted_;  // what has been appended is taken back from here on
  const StepRow row{token, static_cast<int32_t>(pos), s.slot_};
  const int32_t out_row = 0;
  const DrawRequest draw = s.draw_request(pos + 1);
  engine.run({&row, 1}, {&out_row, 1}, {&draw, 1});
  submitted_[n_submitted_ - 1] = {engine.runner().epoch(),
                                  step_cost(engine.plan(), engine.runner().shape())};
  --steps_left_;
}

int32_t DecodeLoop::next_of_device() {
  Sequence& s = sequence_;
  Engine& engine = *s.engine_;
  if (n_submitted_ > 0 && engine.runner().epoch() - submitted_[0].epoch >= kStepRing) {
    forget_submitted();  // its answer has made room for those of other sequences' steps
  }
  FATHOM_CHECK(n_submitted_ > 0 || steps_left_ > 0, "more steps than were announced");
  if (n_submitted_ == 0) submit(token_);
  if (steps_left_ > 0 && s.size() + n_submitted_ < engine.n_ctx()) submit(kNewestToken);
  const Submitted done = submitted_[0];
  const Drawn drawn = engine.runner().drawn(done.epoch, 0);
  submitted_[0] = submitted_[1];
  --n_submitted_;
  s.tokens_.push_back(token_);
  s.logits_row_ = 0;
  s.logits_epoch_ = done.epoch;
  s.drawn_ = true;
  s.stats_.decode_tokens += 1;
  s.stats_.decode_cost += done.cost;
  return s.accept(drawn);
}

}  // namespace fathom::engine

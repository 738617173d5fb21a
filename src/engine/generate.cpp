// SPDX-License-Identifier: Apache-2.0
// The loop with its clock, and the text that leaves it: whole UTF-8 only, and never a stop string.
#include "engine/generate.hpp"

#include <limits>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "engine/loop_clock.hpp"
#include "text/detokenizer.hpp"
#include "text/stop_matcher.hpp"

namespace fathom::engine {
namespace {

// Makes decode_s the time from the first token that left to the newest: what a reader sees, where
// the steps alone would leave out sampling and text.
class DecodeTime {
 public:
  explicit DecodeTime(RunStats& stats) : stats_(stats), before_s_(stats.decode_s) {}
  void token_out() {
    if (started_) {
      stats_.decode_s = before_s_ + seconds_since(start_);
    } else {
      started_ = true;
      start_ = Clock::now();
    }
  }

 private:
  RunStats& stats_;
  double before_s_;
  bool started_ = false;
  Clock::time_point start_;
};

// Text on its way out: complete UTF-8, held back while it could still be a stop string.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, const GenerateOptions& options, std::string& text)
      : detokenizer_(tokenizer, {.show_control = options.emit_special}),
        stops_(options.stop),
        options_(options),
        text_(text) {}

  // False when a stop string has been met or the caller has had enough.
  bool push(int32_t token) {
    ready_.clear();
    stops_.push(detokenizer_.push(token), ready_);
    return emit() && !stops_.stopped();
  }
  bool flush() {
    ready_.clear();
    if (!stops_.push(detokenizer_.flush(), ready_)) stops_.flush(ready_);
    return emit();
  }
  bool stopped_by_string() const { return stops_.stopped(); }

 private:
  bool emit() {
    text_ += ready_;
    return ready_.empty() || !options_.on_text || options_.on_text(ready_);
  }

  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
  const GenerateOptions& options_;
  std::string& text_;
  std::string ready_;
};

}  // namespace

GenerateResult generate(Sequence& sequence, std::span<const int32_t> prompt,
                        const GenerateOptions& options) {
  validate(options.sampler);
  validate(options.logit_bias, sequence.engine().config().vocab_size);
  const auto start = Clock::now();
  const text::Tokenizer& tokenizer = sequence.engine().tokenizer();
  const int64_t limit =
      options.max_tokens < 0 ? std::numeric_limits<int64_t>::max() : options.max_tokens;
  GenerateResult result;
  TextStream stream(tokenizer, options, result.text);

  sequence.prefill(prompt, LogitsMode::last, {}, options.cancel, options.on_prefill);
  if (!sequence.has_logits()) {
    fail(ErrorCode::usage, "nothing to continue: the prompt has no tokens");
  }
  result.reason = StopReason::max_tokens;
  DecodeLoop decode(sequence, options.sampler, options.logit_bias, limit - 1);
  DecodeTime decode_time(sequence.stats());
  while (static_cast<int64_t>(result.tokens.size()) < limit) {
    stop_if_cancelled(options.cancel);
    const int32_t token = decode.next();
    if (result.tokens.empty()) {
      sequence.stats().first_token_s = seconds_since(start);
    }
    if (!options.ignore_end_of_generation && tokenizer.is_end_of_generation(token)) {
      decode_time.token_out();
      result.reason = StopReason::end_of_generation;
      break;
    }
    result.tokens.push_back(token);
    const bool wants_more = stream.push(token);
    decode_time.token_out();
    if (!wants_more) {
      result.reason = stream.stopped_by_string() ? StopReason::stop_string : StopReason::callback;
      return result;
    }
    if (static_cast<int64_t>(result.tokens.size()) == limit) break;
    if (sequence.remaining() == 0) {
      result.reason = StopReason::context_full;
      break;
    }
  }
  if (!stream.flush()) result.reason = StopReason::callback;
  return result;
}

}  // namespace fathom::engine

// SPDX-License-Identifier: Apache-2.0
// The public API: thin owners around the engine.
#include "api/impl.hpp"
#include "base/error.hpp"
#include "engine/generate.hpp"
#include "text/detokenizer.hpp"

namespace fathom {

Model Model::open(const std::string& path, const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->engine = engine::Engine::open(path, options);
  impl->log = Log(options.log);
  return Model(std::move(impl));
}

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelInfo& Model::info() const { return impl_->engine->info(); }
const MemoryPlan& Model::memory() const { return impl_->engine->memory(); }

std::vector<int32_t> Model::tokenize(std::string_view text, const TokenizeOptions& options) const {
  const text::Tokenizer& tokenizer = impl_->engine->tokenizer();
  const std::vector<text::TokenSpan> spans = tokenizer.encode_with_offsets(
      text, {.add_special = options.add_special, .parse_special = options.parse_special});
  if (const size_t lost = tokenizer.count_lost_bytes(text, spans); lost > 0) {
    impl_->log(LogLevel::warning,
               "{} of the {} bytes of the text are left out: the vocabulary has no token for them",
               lost, text.size());
  }
  std::vector<int32_t> tokens;
  tokens.reserve(spans.size());
  for (const text::TokenSpan& span : spans) tokens.push_back(span.id);
  return tokens;
}

std::string Model::detokenize(std::span<const int32_t> tokens, bool special) const {
  text::Detokenizer detokenizer(impl_->engine->tokenizer(), {.show_control = special});
  std::string out;
  for (const int32_t token : tokens) out += detokenizer.push(token);
  return out + detokenizer.flush();
}

std::string Model::piece(int32_t token, bool special) const {
  const text::Tokenizer& tokenizer = impl_->engine->tokenizer();
  if (!special && tokenizer.is_control(token)) return "";
  return tokenizer.decode_piece(token);
}

bool Model::is_end_of_generation(int32_t token) const {
  return impl_->engine->tokenizer().is_end_of_generation(token);
}

Sequence Model::sequence() { return Sequence(std::make_unique<Sequence::Impl>(impl_->engine)); }

void Model::step(std::span<const BatchEntry> batch, LogitsMode logits) {
  impl_->step(batch, logits, engine::DecodeBatch::Returns::when_done);
}

void Model::submit(std::span<const BatchEntry> batch, LogitsMode logits) {
  impl_->step(batch, logits, engine::DecodeBatch::Returns::when_submitted);
}

void Model::wait() { impl_->engine->runner().synchronize(); }

void Model::Impl::step(std::span<const BatchEntry> of, LogitsMode logits,
                       engine::DecodeBatch::Returns returns) {
  std::vector<engine::DecodeBatch::Entry>& entries = batch;
  entries.clear();
  for (const BatchEntry& entry : of) {
    if (!entry.sequence) fail(ErrorCode::usage, "a batch entry has no sequence");
    entries.push_back({&entry.sequence->impl_->sequence, entry.token});
  }
  engine::DecodeBatch::step(*engine, entries, logits, returns);
}

Cost Model::step_cost(int64_t n_past, int64_t n_rows) const {
  return impl_->engine->step_cost(n_past, n_rows, 1);
}

StepCounters Model::step_counters() const {
  const engine::StepRunner& runner = impl_->engine->runner();
  return {.graph_captures = runner.captures(),
          .graph_replays = runner.replays(),
          .kernel_launches = runner.kernel_launches()};
}

void Model::set_op_scope_sink(OpScopeSink* sink) { impl_->engine->runner().set_sink(sink); }

void Model::set_capture_scope_sink(OpScopeSink* sink) {
  impl_->engine->runner().set_capture_sink(sink);
}

void Model::set_graph_replay(bool replays) { impl_->engine->runner().set_graph_replay(replays); }

}  // namespace fathom

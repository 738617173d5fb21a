// SPDX-License-Identifier: Apache-2.0
// The public Sequence of <fathom/fathom.hpp>: each call handed on to the engine's sequence, so that
// the public header shows nothing of the engine.
#include "api/impl.hpp"
#include "engine/generate.hpp"

namespace fathom {

Sequence::Sequence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

void Sequence::prefill(std::span<const int32_t> tokens, LogitsMode logits,
                       const LogitsVisitor& visitor, const std::atomic<bool>* cancel) {
  impl_->sequence.prefill(tokens, logits, visitor, cancel);
}
void Sequence::fill_synthetic(int64_t n_tokens, uint64_t seed) {
  impl_->sequence.fill_synthetic(n_tokens, seed);
}
void Sequence::step(int32_t token, LogitsMode logits) { impl_->sequence.step(token, logits); }
void Sequence::truncate(int64_t n_tokens) { impl_->sequence.truncate(n_tokens); }
std::span<const float> Sequence::logits() const { return impl_->sequence.logits(); }
int32_t Sequence::sample(const SamplerParams& params, std::span<const LogitBias> logit_bias) {
  return impl_->sequence.sample(params, logit_bias);
}
GenerateResult Sequence::generate(std::span<const int32_t> prompt, const GenerateOptions& options) {
  return engine::generate(impl_->sequence, prompt, options);
}
int64_t Sequence::size() const { return impl_->sequence.size(); }
int64_t Sequence::remaining() const { return impl_->sequence.remaining(); }
std::span<const int32_t> Sequence::tokens() const { return impl_->sequence.tokens(); }
const RunStats& Sequence::stats() const { return impl_->sequence.stats(); }
void Sequence::reset_stats() { impl_->sequence.stats() = {}; }

}  // namespace fathom

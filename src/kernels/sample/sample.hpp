// SPDX-License-Identifier: Apache-2.0
// sample: one implementation of sampling for host and device. Order of the chain: repetition
// penalty and logit bias, then greedy (temperature 0) or temperature, top-k, top-p, min-p, and a
// draw whose random number is Philox4x32-10 (Salmon et al., SC 2011) keyed by (seed, position).
// Ties go to the lower token id; prefix sums run in a fixed order; exp is fathom::portable_exp.
// On a device with memory of its own the same chain is an op of the step: draw.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "fathom/sampling.hpp"
#include "kernels/exec_context.hpp"

namespace fathom {

struct SampleArgs {
  struct Static {
    int64_t vocab_size;
  } s;
  const SamplerParams* params;
  std::span<const LogitBias> logit_bias;
  std::span<const int32_t> history;  // the sequence so far, newest last
  int64_t position;                  // of the token to be drawn: the random stream's counter
  const float* logits;               // [vocab_size]
  int32_t* token;                    // out
};

// Throws Error{usage} naming the parameter that is out of its range.
void validate(const SamplerParams& params);
// The tokens that the repetition penalty looks back at; none when it changes nothing. Throws
// Error{internal} for a token outside the vocabulary.
std::span<const int32_t> penalty_window(const SampleArgs& args);
// Throws Error{usage}: there is nothing to draw from.
[[noreturn]] void fail_without_finite_logit(float largest);
// Throws Error{usage} for a token outside the vocabulary and a bias of +inf or NaN.
void validate(std::span<const LogitBias> logit_bias, int64_t vocab_size);
Cost cost(const SampleArgs::Static& s, int64_t n_out);
int64_t workspace_bytes_cpu(const SampleArgs::Static& s);
void sample_ref(ExecContext& ctx, const SampleArgs& args);
void sample_cpu(ExecContext& ctx, const SampleArgs& args);

}  // namespace fathom

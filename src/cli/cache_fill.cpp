// SPDX-License-Identifier: Apache-2.0
// Slices of a prefill, so that there is progress to show; then the synthetic rest at once.
#include "cli/cache_fill.hpp"

#include <algorithm>
#include <span>

#include "cli/interrupt.hpp"
#include "measure/statistics.hpp"

namespace fathom::cli {

const char* fill_name(CacheFill fill, int64_t depth) {
  return fill == CacheFill::synthetic && depth > kSyntheticSource ? "synthetic" : "real";
}

std::vector<int32_t> random_tokens(const Model& model, int64_t count, uint64_t seed) {
  measure::Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  const uint64_t vocab = static_cast<uint64_t>(model.info().vocab_size);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(vocab));
  return tokens;
}

void fill_to_depth(const Model& model, Sequence& sequence, int64_t depth, CacheFill fill,
                   uint64_t seed, const std::function<void(double)>& progress) {
  constexpr int64_t kSlice = 512;
  const int64_t n_real = fill == CacheFill::synthetic ? std::min(depth, kSyntheticSource) : depth;
  const std::vector<int32_t> tokens = random_tokens(model, n_real, seed);
  for (int64_t at = 0; at < n_real; at += kSlice) {
    const int64_t n = std::min(kSlice, n_real - at);
    sequence.prefill(std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(n)),
                     LogitsMode::skip, {}, &interrupted());
    progress(static_cast<double>(at + n) / static_cast<double>(n_real));
  }
  sequence.fill_synthetic(depth - n_real, seed);
}

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Brings a sequence to the depth at which something is measured: by a real prefill of random
// tokens, or of their first ones and synthetic keys and values behind them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fathom/fathom.hpp"

namespace fathom::cli {

enum class CacheFill { real, synthetic };

// What the rows of a depth are marked with: a synthetic fill starts with kSyntheticSource real
// tokens, so that shallow depths are real.
inline constexpr int64_t kSyntheticSource = 256;
const char* fill_name(CacheFill fill, int64_t depth);

// Random tokens without control tokens' ids at the end of most vocabularies, the same for a seed.
std::vector<int32_t> random_tokens(const Model& model, int64_t count, uint64_t seed);

// Ctrl-C ends it with Error{cancelled}. progress: share done, 0..1.
void fill_to_depth(const Model& model, Sequence& sequence, int64_t depth, CacheFill fill,
                   uint64_t seed, const std::function<void(double)>& progress);

}  // namespace fathom::cli

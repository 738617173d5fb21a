// SPDX-License-Identifier: Apache-2.0
// What the options of a run mean for the cache of a model, without opening it: `inspect` shows what
// Engine::open will allocate.
#pragma once

#include <cstdint>

#include "cache/gqa/gqa_cache.hpp"
#include "fathom/types.hpp"
#include "model/model_config.hpp"

namespace fathom::engine {

// The tokens a sequence can hold when the caller names no number.
int64_t default_context(const ModelConfig& config);

// The cache of `options`, with n_ctx tokens a sequence; still to be validated.
GqaCacheConfig plan_cache(const ModelConfig& config, int64_t n_ctx, const OpenOptions& options);

}  // namespace fathom::engine

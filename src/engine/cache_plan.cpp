// SPDX-License-Identifier: Apache-2.0
// The public KV types as the cache's formats, and the context that a model gets by default.
#include "engine/cache_plan.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace fathom::engine {
namespace {

constexpr int64_t kDefaultContext = 4096;

KvFormat kv_format(KvType type) {
  constexpr std::array kFormats{KvFormat::f16, KvFormat::bf16, KvFormat::f32, KvFormat::q8_0,
                                KvFormat::fp8_e4m3};
  static_assert(kFormats.size() == kKvFormats);
  const size_t index = static_cast<size_t>(type);
  if (index >= kFormats.size()) {
    fail(ErrorCode::usage,
         "KV cache type: found {}, expected KvType f16, bf16, f32, q8_0 or fp8_e4m3",
         static_cast<int>(type));
  }
  return kFormats[index];
}

}  // namespace

int64_t default_context(const ModelConfig& config) {
  return std::min(config.n_ctx_train, kDefaultContext);
}

GqaCacheConfig plan_cache(const ModelConfig& config, int64_t n_ctx, const OpenOptions& options) {
  return {.format = kv_format(options.kv_type),
          .n_layers = config.n_layers,
          .n_kv_heads = config.n_kv_heads,
          .head_dim = config.head_dim,
          .n_ctx = n_ctx,
          .max_sequences = options.max_sequences,
          .page_tokens = options.page_tokens};
}

}  // namespace fathom::engine

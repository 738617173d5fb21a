// SPDX-License-Identifier: Apache-2.0
// Refusals by name, and the geometry of a launch, which never depends on the length of a sequence.
#include "kernels/attn/attn_plan.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr int kHeadDims[] = {16, 32, 64, 80, 96, 128, 256};
constexpr int kMaxNarrowRows = 32;
constexpr int64_t kScratchBytes = int64_t{64} << 20;

int group_size(const AttnArgs::Static& s) { return s.n_heads / s.n_kv_heads; }

}  // namespace

void check_attn_cuda(const AttnArgs::Static& s) {
  FATHOM_CHECK(s.n_kv_heads > 0 && s.n_heads % s.n_kv_heads == 0,
               "heads must share KV heads evenly");
  FATHOM_CHECK(s.kv.geometry.n_kv_heads == s.n_kv_heads && s.kv.geometry.head_dim == s.head_dim,
               "the cache has another geometry");
  const int group = group_size(s);
  if (group > kAttnMaxCudaGroup) {
    fail(ErrorCode::unsupported,
         "{} query heads share a KV head; the CUDA backend takes at most {}", group,
         kAttnMaxCudaGroup);
  }
  if (std::ranges::find(kHeadDims, s.head_dim) == std::end(kHeadDims)) {
    fail(ErrorCode::unsupported,
         "head dim {}: the CUDA backend has attention for 16, 32, 64, 80, 96, 128 and 256",
         s.head_dim);
  }
  if (s.kv.geometry.format == KvFormat::q8_0 && s.head_dim % 32 != 0) {
    fail(ErrorCode::unsupported, "a q8_0 cache needs a head dim that is a multiple of 32, not {}",
         s.head_dim);
  }
}

bool plans_attn_flash(const AttnArgs::Static& s, int n_rows) {
  constexpr KvFormat kFormats[] = {KvFormat::f16, KvFormat::bf16, KvFormat::q8_0};
  return n_rows >= kAttnFlashRows && s.head_dim >= 64 &&
         std::ranges::find(kFormats, s.kv.geometry.format) != std::end(kFormats);
}

AttnPlan plan_attn_cuda(const AttnArgs::Static& s, int n_rows, bool four_tiles_fit) {
  const int group = group_size(s);
  if (!four_tiles_fit && group > kAttnTileColumns) {
    fail(ErrorCode::unsupported,
         "{} query heads of {} dims that share a KV head need more shared memory than this GPU has",
         group, s.head_dim);
  }
  AttnPlan plan{};
  const bool narrow = group <= kAttnTileColumns && (n_rows <= kMaxNarrowRows || !four_tiles_fit);
  plan.n_tiles = narrow ? 1 : 4;
  plan.rows_per_entry = std::max(1, plan.n_tiles * kAttnTileColumns / group);
  const int of_row = s.n_kv_heads * (plan.n_tiles == 1 ? kAttnCluster : 1);
  const auto counters = static_cast<int>(kCounterBytes / 4 / of_row);
  const int most = std::min(kAttnMaxLaunchRows, counters);
  plan.rows_per_launch = most / plan.rows_per_entry * plan.rows_per_entry;
  return plan;
}

int64_t attn_scratch_bytes(const AttnArgs::Static& s) {
  const auto units = [&](int tokens) { return (s.n_ctx + tokens - 1) / tokens; };
  int64_t bytes = 0;
  for (const int64_t n_rows : {std::min<int64_t>(s.max_rows, kMaxNarrowRows), s.max_rows}) {
    const AttnPlan plan = plan_attn_cuda(s, static_cast<int>(n_rows), true);
    const int64_t slot_bytes = attn_slot_bytes(plan.n_tiles, s.head_dim);
    const int64_t smallest = units(plan.n_tiles == 1 ? kAttnUnitTokens : kAttnWideUnitTokens);
    if (smallest <= 1) continue;  // one block holds the result
    const int64_t all =
        std::min<int64_t>(n_rows, plan.rows_per_launch) * smallest * s.n_kv_heads * slot_bytes;
    const int64_t two_sequences = 2 * units(kAttnWideUnitTokens) * s.n_kv_heads * slot_bytes;
    bytes = std::max(bytes, std::min(all, std::max(kScratchBytes, two_sequences)));
  }
  return (bytes + 63) / 64 * 64;
}

}  // namespace fathom::cuda

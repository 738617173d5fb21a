// SPDX-License-Identifier: Apache-2.0
// The launcher of the seed's kernels and their entries of an op table. Both kernels start when the
// one before them in the stream has ended, as the seed's did. The grid depends on rows and splits,
// never on a length: a captured launch serves all depths.
#include "kernels/attn/attn_seed_plan.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "kernels/attn/attn_seed_kernel.cuh"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

using Kernel = void (*)(AttnSeedParams);

template <int kHeadDim, int kStaging, bool kStagesValues>
Kernel partial_of(int warps) {
  if (warps == 1) return attn_seed_partial_kernel<kHeadDim, kStaging, kStagesValues, 1>;
  if (warps == 4) return attn_seed_partial_kernel<kHeadDim, kStaging, kStagesValues, 4>;
  FATHOM_CHECK(warps == 8, "warps: 1, 4 or 8");
  return attn_seed_partial_kernel<kHeadDim, kStaging, kStagesValues, 8>;
}
template <int kHeadDim, bool kStagesValues>
Kernel partial_of(int staging, int warps) {
  if (staging == 4) return partial_of<kHeadDim, 4, kStagesValues>(warps);
  if (staging == 8) return partial_of<kHeadDim, 8, kStagesValues>(warps);
  FATHOM_CHECK(staging == 16, "staging: 4, 8 or 16");
  return partial_of<kHeadDim, 16, kStagesValues>(warps);
}
template <int kHeadDim>
Kernel partial_of(const AttnSeedKnobs& k) {
  return k.stages_values ? partial_of<kHeadDim, true>(k.staging, k.warps)
                         : partial_of<kHeadDim, false>(k.staging, k.warps);
}

AttnSeedParams params_of(const AttnSeedKnobs& knobs, ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const int64_t n_floats = int64_t{args.step->n_rows} * s.n_heads * knobs.splits * (s.head_dim + 2);
  Workspace workspace = ctx.workspace;
  AttnSeedParams p{};
  p.kv = s.kv;
  p.pos = args.step->pos;
  p.slot = args.step->slot;
  p.page_table = args.step->page_table;
  p.q = args.q;
  p.out = args.out;
  p.states = workspace.take<float>(n_floats);
  p.tiles_per_page = s.kv.geometry.page_tokens / kKvTileTokens;
  p.page_factor =
      static_cast<unsigned>(((uint64_t{1} << 32) + p.tiles_per_page - 1) / p.tiles_per_page);
  FATHOM_CHECK(s.n_ctx / kKvTileTokens * p.tiles_per_page < int64_t{1} << 32,
               "page numbers are found by a product of 32 bits");
  p.max_pages = args.step->max_pages;
  p.n_heads = s.n_heads;
  p.group = s.n_heads / s.n_kv_heads;
  p.n_splits = knobs.splits;
  p.part_quads_log2 = std::countr_zero(static_cast<unsigned>(knobs.window / knobs.warps / 4));
  p.scale = s.scale;
  return p;
}

template <size_t kIndex>
void run_variant(ExecContext& ctx, const AttnArgs& args) {
  attn_seed(kAttnSeedKnobs[kIndex], ctx, args);
}

template <size_t kIndex>
OpVariant variant_at() {
  const AttnSeedKnobs& k = kAttnSeedKnobs[kIndex];
  return {.op = "attn",
          .name = attn_seed_name(k),
          .knobs = {{"splits", k.splits},
                    {"staging", k.staging},
                    {"values", k.stages_values},
                    {"warps", k.warps},
                    {"window", k.window}},
          .apply = [](OpTable& table) {
            table.attn = run_variant<kIndex>;
            table.workspace_bytes.attn = workspace_bytes_attn_seed;
          }};
}

}  // namespace

std::span<const OpVariant> attn_seed_variants() {
  static const std::vector<OpVariant> kAll = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::vector<OpVariant>{variant_at<kIndex>()...};
  }
  (std::make_index_sequence<kAttnSeedVariants>());
  return {kAll.data(), kAll.size()};
}

int64_t workspace_bytes_attn_seed(const AttnArgs::Static& s) {
  return std::max(workspace_bytes_cuda(s), attn_seed_scratch_bytes(s));
}

void attn_seed(const AttnSeedKnobs& knobs, ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const int n_rows = args.step->n_rows;
  check_attn_seed(s);
  if (n_rows == 0) return;
  if (n_rows > kAttnSeedMaxRows) return attn_cuda(ctx, args);
  const AttnSeedParams params = params_of(knobs, ctx, args);
  const Kernel partial = s.head_dim == 64 ? partial_of<64>(knobs) : partial_of<128>(knobs);
  const Kernel combine =
      s.head_dim == 64 ? attn_seed_combine_kernel<64> : attn_seed_combine_kernel<128>;
  const auto n_heads = static_cast<unsigned>(s.n_heads), rows = static_cast<unsigned>(n_rows);
  launch_in_order(partial, dim3(static_cast<unsigned>(knobs.splits), n_heads, rows),
                  dim3(32 * static_cast<unsigned>(knobs.warps)), ctx.stream.handle, params);
  launch_in_order(combine, dim3(n_heads, rows), dim3(static_cast<unsigned>(s.head_dim)),
                  ctx.stream.handle, params);
}

}  // namespace fathom::cuda

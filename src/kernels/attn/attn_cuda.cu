// SPDX-License-Identifier: Apache-2.0
// The launcher of attn_kernel; steps of many rows go to attn_flash_cuda.cu where there is such a
// kernel. The geometry depends on the rows and the capacity, never on a length: a captured launch
// serves all depths.
#include <algorithm>

#include "base/check.hpp"
#include "kernels/attn/attn_flash_launch.hpp"
#include "kernels/attn/attn_plan.hpp"
#include "kernels/attn/attn_variant_kernel.cuh"
#include "kernels/common/cluster_limit.cuh"
#include "kernels/common/clusters.cuh"
#include "kernels/common/cuda_check.cuh"

namespace fathom {
namespace {

static_assert(cuda::kAttnRunTokens == cuda::kAttnUnitTokens &&
              cuda::kAttnNodeTokens == cuda::kAttnWideUnitTokens &&
              cuda::kAttnMaxCluster == cuda::kAttnCluster &&
              cuda::kAttnKernelColumns == cuda::kAttnTileColumns);
constexpr float kLog2E = 1.4426950408889634f;

cuda::AttnVariant variant_of(KvFormat format, int head_dim, int n_tiles) {
  constexpr cuda::AttnVariant (*kByFormat[kKvFormats])(int, int) = {
      cuda::attn_variant_f32, cuda::attn_variant_f16, cuda::attn_variant_bf16,
      cuda::attn_variant_q8_0, cuda::attn_variant_fp8_e4m3};
  const cuda::AttnVariant out = kByFormat[static_cast<int>(format)](head_dim, n_tiles);
  FATHOM_CHECK(out.kernel != nullptr, "no attention kernel for this head dim and KV format");
  return out;
}

int attribute(cudaDeviceAttr what) {
  int device = 0, value = 0;
  cuda::check(cudaGetDevice(&device));
  cuda::check(cudaDeviceGetAttribute(&value, what, device));
  return value;
}

struct Geometry {
  int cluster;  // blocks
  int64_t n_blocks;
};

// As many blocks as fit. Blocks of one tile come in clusters, where the device has them.
Geometry geometry(const cuda::AttnVariant& variant, bool in_clusters, int shared) {
  const int n_sms = attribute(cudaDevAttrMultiProcessorCount);
  const int cluster = std::min(cuda::kAttnCluster, cuda::most_cluster_blocks);
  if (in_clusters && cluster > 1 && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    const int n_clusters =
        cuda::clusters_that_fit(variant.kernel, cluster, variant.threads, shared);
    if (n_clusters > 0) return {cluster, int64_t{n_clusters} * cluster};
  }
  int blocks_per_sm = 0;
  cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, variant.kernel,
                                                            variant.threads, shared));
  return {1, int64_t{n_sms} * std::max(1, blocks_per_sm)};
}

void launch_rows(const cuda::AttnVariant& variant, int n_tiles, const cuda::AttnParams& params,
                 int64_t n_ctx, void* stream) {
  const int shared = variant.shared_bytes + params.n_rows * 16;
  cuda::check(
      cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cuda::use_most_shared_memory(variant.kernel);
  const auto [cluster, n_resident] = geometry(variant, n_tiles == 1, shared);
  const int64_t unit_tokens = n_tiles == 1 ? cuda::kAttnUnitTokens : cuda::kAttnWideUnitTokens;
  const int64_t n_units = std::max<int64_t>(1, (n_ctx + unit_tokens - 1) / unit_tokens);
  const int64_t most_items = n_units * params.n_rows * params.n_kv_heads;
  const int64_t n_blocks = std::min(n_resident, (most_items + cluster - 1) / cluster * cluster);
  cuda::launch_clusters(variant.kernel, cluster, dim3(static_cast<unsigned>(n_blocks)),
                        dim3(static_cast<unsigned>(variant.threads)), static_cast<size_t>(shared),
                        stream, params);
}

}  // namespace

// Planned before anything is loaded, so a shape without a kernel is refused then.
int64_t workspace_bytes_cuda(const AttnArgs::Static& s) {
  cuda::check_attn_cuda(s);
  return cuda::attn_scratch_bytes(s);
}

void attn_cuda(ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const StepState& step = *args.step;
  cuda::check_attn_cuda(s);
  if (step.n_rows == 0) return;
  if (cuda::takes_attn_flash(s, step.n_rows)) return cuda::attn_flash(ctx, args);
  const KvFormat format = s.kv.geometry.format;
  const int most_shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const bool four_tiles_fit = variant_of(format, s.head_dim, 4).shared_bytes +
                                  std::min(step.n_rows, cuda::kAttnMaxLaunchRows) * 16 <=
                              most_shared;
  const cuda::AttnPlan plan = cuda::plan_attn_cuda(s, step.n_rows, four_tiles_fit);
  const cuda::AttnVariant variant = variant_of(format, s.head_dim, plan.n_tiles);
  Workspace workspace = ctx.workspace, counters = ctx.counters;
  const int64_t scratch_bytes = workspace_bytes_cuda(s);

  cuda::AttnParams params{};
  params.kv = s.kv;
  params.page_table = step.page_table;
  params.states = reinterpret_cast<float*>(workspace.take<std::byte>(scratch_bytes));
  params.n_slots =
      static_cast<int>(scratch_bytes / cuda::attn_slot_bytes(plan.n_tiles, s.head_dim));
  params.counters = counters.take<unsigned>(int64_t{plan.rows_per_launch} * s.n_kv_heads *
                                            (plan.n_tiles == 1 ? cuda::kAttnCluster : 1));
  params.tiles_per_page = s.kv.geometry.page_tokens / kKvTileTokens;
  params.page_factor = static_cast<unsigned>(((uint64_t{1} << 32) + params.tiles_per_page - 1) /
                                             params.tiles_per_page);
  FATHOM_CHECK(s.n_ctx / kKvTileTokens * params.tiles_per_page < int64_t{1} << 32,
               "page numbers are found by a product of 32 bits");
  params.max_pages = step.max_pages;
  params.n_heads = s.n_heads;
  params.n_kv_heads = s.n_kv_heads;
  params.group = s.n_heads / s.n_kv_heads;
  params.rows_per_entry = plan.rows_per_entry;
  params.scale_log2 = s.scale * kLog2E;
  const int64_t width = int64_t{s.n_heads} * s.head_dim;
  for (int first = 0; first < step.n_rows; first += plan.rows_per_launch) {
    params.n_rows = std::min(plan.rows_per_launch, step.n_rows - first);
    params.pos = step.pos + first;
    params.slot = step.slot + first;
    params.is_first_launch = first == 0;
    params.q = args.q + first * width;
    params.out = args.out + first * width;
    launch_rows(variant, plan.n_tiles, params, s.n_ctx, ctx.stream.handle);
  }
}

}  // namespace fathom

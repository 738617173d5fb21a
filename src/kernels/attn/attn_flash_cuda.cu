// SPDX-License-Identifier: Apache-2.0
// The launcher of attn_flash_kernel. Blocks find their work from the step's positions, so that a
// captured launch serves all depths.
#include <algorithm>

#include "base/check.hpp"
#include "kernels/attn/attn_flash_launch.hpp"
#include "kernels/attn/attn_flash_variant_kernel.cuh"
#include "kernels/attn/attn_plan.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

static_assert(kAttnFlashMostRows == kAttnFlashLaunchRows);
constexpr float kLog2E = 1.4426950408889634f;

AttnFlashVariant variant_of(KvFormat format, int head_dim) {
  switch (format) {
    case KvFormat::f16:
      return attn_flash_variant_f16(head_dim);
    case KvFormat::bf16:
      return attn_flash_variant_bf16(head_dim);
    case KvFormat::q8_0:
      return attn_flash_variant_q8_0(head_dim);
    default:
      return {};
  }
}

int attribute(cudaDeviceAttr what) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&value, what, device));
  return value;
}

}  // namespace

bool takes_attn_flash(const AttnArgs::Static& s, int n_rows) {
  return plans_attn_flash(s, n_rows) && attribute(cudaDevAttrComputeCapabilityMajor) == 9;
}

void attn_flash(ExecContext& ctx, const AttnArgs& args) {
  const AttnArgs::Static& s = args.s;
  const StepState& step = *args.step;
  const AttnFlashVariant variant = variant_of(s.kv.geometry.format, s.head_dim);
  FATHOM_CHECK(variant.kernel != nullptr, "no kernel of many rows for this head dim and KV format");
  AttnFlashParams params{};
  params.kv = s.kv;
  params.page_table = step.page_table;
  params.tiles_per_page = s.kv.geometry.page_tokens / kKvTileTokens;
  params.page_factor = static_cast<unsigned>(((uint64_t{1} << 32) + params.tiles_per_page - 1) /
                                             params.tiles_per_page);
  FATHOM_CHECK(s.n_ctx / kKvTileTokens * params.tiles_per_page < int64_t{1} << 32,
               "page numbers are found by a product of 32 bits");
  params.max_pages = step.max_pages;
  params.n_heads = s.n_heads;
  params.n_kv_heads = s.n_kv_heads;
  params.group = s.n_heads / s.n_kv_heads;
  params.scale_log2 = s.scale * kLog2E;
  const int64_t width = int64_t{s.n_heads} * s.head_dim;
  const int n_sms = attribute(cudaDevAttrMultiProcessorCount);
  for (int first = 0; first < step.n_rows; first += kAttnFlashLaunchRows) {
    params.n_rows = std::min(kAttnFlashLaunchRows, step.n_rows - first);
    params.pos = step.pos + first;
    params.slot = step.slot + first;
    params.q = args.q + first * width;
    params.out = args.out + first * width;
    // A segment has at most one tile that is not full.
    const int64_t most_items =
        (int64_t{params.n_rows} * params.group / kAttnFlashColumns + params.n_rows) *
        params.n_kv_heads;
    const int shared = variant.shared_bytes + params.n_rows * 8;
    check(
        cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    launch(variant.kernel, dim3(static_cast<unsigned>(std::min<int64_t>(n_sms, most_items))),
           dim3(kAttnFlashThreads), static_cast<size_t>(shared), ctx.stream.handle, params);
  }
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The entry point of libfathom_cuda.so: its op table, device and packing.
#include "device/backend.hpp"

#include "backends/cuda/device_api.hpp"
#include "backends/cuda/hidden_form.hpp"
#include "backends/cuda/pack.hpp"
#include "base/build_info.hpp"
#include "kernels/attn/attn_seed.hpp"
#include "kernels/op_table.hpp"

namespace fathom::cuda {
namespace {

constexpr OpTable kOps = {
    .embed = embed_cuda,
    .norm_qkv_rope_append = norm_qkv_rope_append_cuda,
    .attn = attn_cuda,
    .out_proj_residual = out_proj_residual_cuda,
    .norm_gate_up_act = norm_gate_up_act_cuda,
    .down_proj_residual = down_proj_residual_cuda,
    .norm_head = norm_head_cuda,
    .sample = nullptr,
    .kv_fill = kv_fill_cuda,
    .workspace_bytes = {workspace_bytes_cuda, workspace_bytes_cuda, workspace_bytes_cuda,
                        workspace_bytes_cuda, workspace_bytes_cuda, workspace_bytes_cuda, nullptr,
                        workspace_bytes_draw_cuda},
    .begin_step = begin_step_cuda,
    .draw = draw_cuda,
    .hidden_form = hidden_form,
};

}  // namespace
}  // namespace fathom::cuda

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  using namespace fathom;
  if (abi != kBackendAbi) return nullptr;
  static const Backend kBackend = {.abi = kBackendAbi,
                                   .name = "cuda",
                                   .build_id = build_info().commit,
                                   .ops = &cuda::kOps,
                                   .device = &cuda::device_api(),
                                   .plan_matrix = cuda::plan_matrix,
                                   .pack_matrix = cuda::pack_matrix,
                                   .has_graphs = true,
                                   .default_ubatch = 2048,
                                   .variants = cuda::attn_seed_variants};
  return &kBackend;
}

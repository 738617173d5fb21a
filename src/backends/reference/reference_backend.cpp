// SPDX-License-Identifier: Apache-2.0
// The reference backend's entries: the op table of the *_ref functions, and packing that copies the
// file's bytes.
#include "backends/reference/reference_backend.hpp"

#include <cstring>

#include "device/host_device.hpp"
#include "kernels/op_table.hpp"

namespace fathom {
namespace {

PackedMatrix plan_matrix(DType file_type, int64_t rows, int64_t cols, Activations) {
  PackedMatrix plan;
  plan.file_type = file_type;
  plan.packed_type = file_type;
  plan.rows = rows;
  plan.cols = cols;
  plan.file_bytes = rows * row_bytes(file_type, cols);
  plan.packed_bytes = plan.file_bytes;
  return plan;
}

void pack_matrix(ThreadPool&, const PackedMatrix& plan, const std::byte* file, std::byte* packed) {
  std::memcpy(packed, file, plan.packed_bytes);
}

}  // namespace

const OpTable& reference_ops() {
  static constexpr OpTable kOps{
      .embed = embed_ref,
      .norm_qkv_rope_append = norm_qkv_rope_append_ref,
      .attn = attn_ref,
      .out_proj_residual = out_proj_residual_ref,
      .norm_gate_up_act = norm_gate_up_act_ref,
      .down_proj_residual = down_proj_residual_ref,
      .norm_head = norm_head_ref,
      .sample = sample_ref,
      .kv_fill = kv_fill_ref,
      .workspace_bytes = kCpuWorkspaces,
  };
  return kOps;
}

const Backend& reference_backend() {
  static const Backend kBackend{
      .abi = kBackendAbi,
      .name = "reference",
      .build_id = "double accumulators, file layout",
      .ops = &reference_ops(),
      .device = &host_device(),
      .plan_matrix = plan_matrix,
      .pack_matrix = pack_matrix,
      .keeps_file_layout = true,
  };
  return kBackend;
}

}  // namespace fathom

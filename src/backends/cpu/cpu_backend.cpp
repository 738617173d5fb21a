// SPDX-License-Identifier: Apache-2.0
// The CPU backend's entries: the table of its ops, host memory as its device, and packing as quant
// does it.
#include "backends/cpu/cpu_backend.hpp"

#include "device/host_device.hpp"
#include "kernels/op_table.hpp"
#include "kernels/quant/pack.hpp"

namespace fathom {

const OpTable& cpu_ops() {
  static constexpr OpTable kOps = {
      embed_cpu,
      norm_qkv_rope_append_cpu,
      attn_cpu,
      out_proj_residual_cpu,
      norm_gate_up_act_cpu,
      down_proj_residual_cpu,
      norm_head_cpu,
      sample_cpu,
      kv_fill_cpu,
      kCpuWorkspaces,
  };
  return kOps;
}

const Backend& cpu_backend() {
  static const Backend kBackend{
      .abi = kBackendAbi,
      .name = "cpu",
      .build_id = "cpu scalar, avx2, avx512",
      .ops = &cpu_ops(),
      .device = &host_device(),
      .plan_matrix = quant::plan_matrix,
      .pack_matrix = quant::pack_matrix,
  };
  return kBackend;
}

}  // namespace fathom

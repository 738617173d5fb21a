// SPDX-License-Identifier: Apache-2.0
// Gate and up of the same rows go together, so that a block has both sums.
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"
#include "kernels/quant/silu_times_kernel.cuh"

namespace fathom {

int64_t workspace_bytes_cuda(const NormGateUpActArgs::Static& s) {
  return cuda::matmul_acts_bytes({&s.gate, &s.up}, s.max_rows);
}

void norm_gate_up_act_cuda(ExecContext& ctx, const NormGateUpActArgs& args) {
  const NormGateUpActArgs::Static& s = args.s;
  Workspace workspace = ctx.workspace;
  const int64_t n_rows = args.step->n_rows;
  const quant::MatmulParams p =
      cuda::matmul_params({&s.gate, &s.up}, 2, n_rows, args.x, s.norm, s.rms_eps);
  if (n_rows == 1 && s.h_form == HiddenForm::backend) {
    FATHOM_CHECK(s.d_ff % quant::kMmaTileCols == 0, "codes of h have no padding");
    auto* codes = reinterpret_cast<std::byte*>(args.h);
    auto* info = reinterpret_cast<quant::ActInfo*>(codes + s.d_ff);
    return cuda::launch_matmul_one(p, SiluTimesCodes{codes, info}, ctx.stream.handle);
  }
  cuda::launch_matmul(p, workspace.take<std::byte>(workspace_bytes_cuda(s)),
                      SiluTimes{args.h, static_cast<int>(s.d_ff)}, ctx.stream.handle);
}

}  // namespace fathom

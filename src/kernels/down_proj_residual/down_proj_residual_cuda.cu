// SPDX-License-Identifier: Apache-2.0
// A product whose sums enter the residual stream.
#include "kernels/down_proj_residual/down_proj_residual.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom {

int64_t workspace_bytes_cuda(const DownProjResidualArgs::Static& s) {
  return cuda::matmul_acts_bytes({&s.w}, s.max_rows);
}

void down_proj_residual_cuda(ExecContext& ctx, const DownProjResidualArgs& args) {
  const DownProjResidualArgs::Static& s = args.s;
  Workspace workspace = ctx.workspace;
  quant::MatmulParams p = cuda::matmul_params({&s.w}, 1, args.step->n_rows, args.a, nullptr, 0.0f);
  const cuda::AddToResidual op{args.x, s.bias, static_cast<int>(s.w.rows)};
  if (p.n_rows == 1 && s.a_form == HiddenForm::backend) {
    p.in_codes = true;
    return cuda::launch_matmul_one(p, op, ctx.stream.handle);
  }
  cuda::launch_matmul(p, workspace.take<std::byte>(workspace_bytes_cuda(s)), op, ctx.stream.handle);
}

}  // namespace fathom

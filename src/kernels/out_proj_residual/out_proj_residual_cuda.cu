// SPDX-License-Identifier: Apache-2.0
// A product whose sums enter the residual stream.
#include "kernels/out_proj_residual/out_proj_residual.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom {

int64_t workspace_bytes_cuda(const OutProjResidualArgs::Static& s) {
  return cuda::matmul_acts_bytes({&s.w}, s.max_rows);
}

void out_proj_residual_cuda(ExecContext& ctx, const OutProjResidualArgs& args) {
  const OutProjResidualArgs::Static& s = args.s;
  Workspace workspace = ctx.workspace;
  cuda::launch_matmul(cuda::matmul_params({&s.w}, 1, args.step->n_rows, args.a, nullptr, 0.0f),
                      workspace.take<std::byte>(workspace_bytes_cuda(s)),
                      cuda::AddToResidual{args.x, s.bias, static_cast<int>(s.w.rows)},
                      ctx.stream.handle);
}

}  // namespace fathom

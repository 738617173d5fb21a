// SPDX-License-Identifier: Apache-2.0
// The CPU entry: the code that it shares with down_proj_residual, on this op's arguments.
#include "kernels/common/proj_residual_cpu.hpp"
#include "kernels/out_proj_residual/out_proj_residual.hpp"

namespace fathom {

int64_t workspace_bytes_cpu(const OutProjResidualArgs::Static& s) {
  return proj_residual_workspace(s);
}

void out_proj_residual_cpu(ExecContext& ctx, const OutProjResidualArgs& args) {
  proj_residual_cpu(ctx, args);
}

}  // namespace fathom

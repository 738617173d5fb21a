// SPDX-License-Identifier: Apache-2.0
// Logits of the rows that want them.
#include "kernels/norm_head/norm_head.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"
#include "kernels/quant/store_logits_kernel.cuh"

namespace fathom {
int64_t workspace_bytes_cuda(const NormHeadArgs::Static& s) {
  return cuda::matmul_acts_bytes({&s.head}, s.max_out);
}

void norm_head_cuda(ExecContext& ctx, const NormHeadArgs& args) {
  const NormHeadArgs::Static& s = args.s;
  Workspace workspace = ctx.workspace;
  quant::MatmulParams p =
      cuda::matmul_params({&s.head}, 1, args.step->n_out, args.x, s.norm, s.rms_eps);
  p.in_row = args.step->out_row;
  cuda::launch_matmul(p, workspace.take<std::byte>(workspace_bytes_cuda(s)),
                      StoreLogits{args.logits, s.vocab_size}, ctx.stream.handle);
}

}  // namespace fathom

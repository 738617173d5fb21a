// SPDX-License-Identifier: Apache-2.0
// Norms (and codes, with int8 activations) of the rows by all threads, then the head's rows in
// chunks.
#include "kernels/common/act_rows_cpu.hpp"
#include "kernels/norm_head/norm_head.hpp"

namespace fathom {

int64_t workspace_bytes_cpu(const NormHeadArgs::Static& s) {
  return ActScratch::bytes(s.max_out, s.d_model);
}

void norm_head_cpu(ExecContext& ctx, const NormHeadArgs& args) {
  const NormHeadArgs::Static& s = args.s;
  const int64_t n_out = args.step->n_out;
  if (n_out == 0) return;
  Workspace workspace = ctx.workspace;
  const ActScratch scratch = ActScratch::take(workspace, s.max_out, s.d_model);
  const int64_t n_groups = row_groups(s.head);
  Chunks row_chunks(n_out, 4);
  Chunks group_chunks(n_groups, matmul_grain(n_groups, s.head.packed_bytes / n_groups, n_out,
                                             ctx.pool->size() * 4));
  ctx.pool->run([&](Team& team) {
    const ActRows act =
        make_act_rows(ctx, team, row_chunks, scratch, {&s.head}, n_out, s.d_model,
                      [&](int64_t i, float* out) -> const float* {
                        if (!out) return scratch.values;
                        const float* x = args.x + args.step->out_row[i] * s.d_model;
                        ctx.cpu->elementwise.rms_norm(x, s.norm, s.rms_eps, s.d_model, out);
                        return out;
                      });
    run_matmuls(ctx, group_chunks, {{&s.head, args.logits, s.vocab_size}}, act, n_out,
                [](const MatmulRun&) {});
  });
}

}  // namespace fathom

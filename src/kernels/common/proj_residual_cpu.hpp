// SPDX-License-Identifier: Apache-2.0
// x += W a + bias: what the two projections into the residual stream share on the CPU.
#pragma once

#include "kernels/common/act_rows_cpu.hpp"
#include "tensor/step_state.hpp"

namespace fathom {

template <class Static>
int64_t proj_residual_workspace(const Static& s) {
  return ActScratch::bytes(s.max_rows, s.w.cols) +
         static_cast<int64_t>(round_up(s.max_rows * s.w.rows * sizeof(float), 64));
}

template <class Args>
void proj_residual_cpu(ExecContext& ctx, const Args& args) {
  const auto& s = args.s;
  const int64_t n_rows = args.step->n_rows;
  Workspace workspace = ctx.workspace;
  const ActScratch scratch = ActScratch::take(workspace, s.max_rows, s.w.cols);
  float* product = workspace.take<float>(n_rows * s.w.rows);
  const int64_t n_groups = row_groups(s.w);
  Chunks row_chunks(n_rows, 4);
  Chunks group_chunks(
      n_groups, matmul_grain(n_groups, s.w.packed_bytes / n_groups, n_rows, ctx.pool->size()));
  ctx.pool->run([&](Team& team) {
    const ActRows act = make_act_rows(ctx, team, row_chunks, scratch, {&s.w}, n_rows, s.w.cols,
                                      [&](int64_t row, float*) { return args.a + row * s.w.cols; });
    run_matmuls(ctx, group_chunks, {{&s.w, product, s.w.rows}}, act, n_rows,
                [&](const MatmulRun& run) {
                  const int64_t begin = run.group_begin * kRowsPerGroup;
                  const int64_t n = std::min(run.group_end * kRowsPerGroup, s.w.rows) - begin;
                  for (int64_t row = 0; row < n_rows; ++row) {
                    float* x = args.x + row * s.w.rows + begin;
                    ctx.cpu->elementwise.add(product + row * s.w.rows + begin, n, x);
                    if (s.bias) ctx.cpu->elementwise.add(s.bias + begin, n, x);
                  }
                });
  });
}

}  // namespace fathom

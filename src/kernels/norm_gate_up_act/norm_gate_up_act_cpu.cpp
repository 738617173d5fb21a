// SPDX-License-Identifier: Apache-2.0
// Gate and up are taken for the same rows by the same thread, so that their product is made while
// both are in its cache. Activation rows go in strips, so that the up values need little room.
#include "kernels/common/act_rows_cpu.hpp"
#include "kernels/norm_gate_up_act/norm_gate_up_act.hpp"

namespace fathom {
namespace {

constexpr int64_t kStripRows = 64;
constexpr int64_t kStripGroups = 8;  // 64 rows x 128 values x 4 bytes = 32 KB a thread

}  // namespace

int64_t workspace_bytes_cpu(const NormGateUpActArgs::Static& s) {
  return ActScratch::bytes(s.max_rows, s.d_model);
}

void norm_gate_up_act_cpu(ExecContext& ctx, const NormGateUpActArgs& args) {
  const NormGateUpActArgs::Static& s = args.s;
  const int64_t n_rows = args.step->n_rows;
  Workspace workspace = ctx.workspace;
  const ActScratch scratch = ActScratch::take(workspace, s.max_rows, s.d_model);
  const int64_t n_groups = row_groups(s.gate);
  const int64_t group_bytes = (s.gate.packed_bytes + s.up.packed_bytes) / n_groups;
  Chunks row_chunks(n_rows, 4);
  Chunks group_chunks(n_groups, std::min(kStripGroups, matmul_grain(n_groups, group_bytes, n_rows,
                                                                    ctx.pool->size())));
  ctx.pool->run([&](Team& team) {
    const ActRows act =
        make_act_rows(ctx, team, row_chunks, scratch, {&s.gate, &s.up}, n_rows, s.d_model,
                      [&](int64_t row, float* out) -> const float* {
                        if (!out) return scratch.values;
                        ctx.cpu->elementwise.rms_norm(args.x + row * s.d_model, s.norm, s.rms_eps,
                                                      s.d_model, out);
                        return out;
                      });
    constexpr int64_t kStripCols = kStripGroups * kRowsPerGroup;
    alignas(64) float up[kStripRows * kStripCols];
    for (int64_t begin, end; group_chunks.next(begin, end);) {
      const int64_t first = begin * kRowsPerGroup;
      const int64_t n = std::min(end * kRowsPerGroup, s.d_ff) - first;
      for (int64_t strip = 0; strip < n_rows; strip += kStripRows) {
        const int64_t strip_end = std::min(strip + kStripRows, n_rows);
        float* gate = args.h + strip * s.d_ff;
        ctx.cpu->matmul_of(s.gate)(
            {s.gate.data, s.d_ff, s.d_model, begin, end, &act, strip, strip_end, gate, s.d_ff, 0});
        ctx.cpu->matmul_of(s.up)({s.up.data, s.d_ff, s.d_model, begin, end, &act, strip, strip_end,
                                  up, kStripCols, first});
        for (int64_t row = 0; row < strip_end - strip; ++row) {
          float* h = gate + row * s.d_ff + first;
          ctx.cpu->elementwise.silu_mul(h, up + row * kStripCols, n, h);
        }
      }
    }
  });
}

}  // namespace fathom

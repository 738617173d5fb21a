// SPDX-License-Identifier: Apache-2.0
// One region for all four parts: norms, the three products, then per head bias, norm, rotation and
// the store into the cache's tiles.
#include "kernels/common/act_rows_cpu.hpp"
#include "kernels/common/kv_store_cpu.hpp"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"

namespace fathom {
namespace {

void rotate(const NormQkvRopeAppendArgs::Static& s, const float* rope, float* head) {
  const int half = s.rope_dim / 2;
  const bool interleaved = s.pairs == RopePairs::interleaved;
  const int step = interleaved ? 2 : 1;
  const int apart = interleaved ? 1 : half;
  for (int i = 0; i < half; ++i) {
    float& a = head[step * i];
    float& b = head[step * i + apart];
    const float cosine = rope[2 * i], sine = rope[2 * i + 1];
    const float turned = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned;
  }
}

}  // namespace

int64_t workspace_bytes_cpu(const NormQkvRopeAppendArgs::Static& s) {
  const int64_t kv_dim = int64_t{s.n_kv_heads} * s.head_dim;
  return ActScratch::bytes(s.max_rows, s.d_model) +
         2 * static_cast<int64_t>(round_up(s.max_rows * kv_dim * sizeof(float), 64));
}

void norm_qkv_rope_append_cpu(ExecContext& ctx, const NormQkvRopeAppendArgs& args) {
  const NormQkvRopeAppendArgs::Static& s = args.s;
  const StepState& step = *args.step;
  const int64_t n_rows = step.n_rows;
  const int64_t q_dim = int64_t{s.n_heads} * s.head_dim;
  const int64_t kv_dim = int64_t{s.n_kv_heads} * s.head_dim;
  Workspace workspace = ctx.workspace;
  const ActScratch scratch = ActScratch::take(workspace, s.max_rows, s.d_model);
  float* keys = workspace.take<float>(n_rows * kv_dim);
  float* values = workspace.take<float>(n_rows * kv_dim);
  const int64_t n_groups = row_groups(s.q) + row_groups(s.k) + row_groups(s.v);
  const int64_t bytes = s.q.packed_bytes + s.k.packed_bytes + s.v.packed_bytes;
  Chunks row_chunks(n_rows, 4);
  Chunks group_chunks(n_groups, matmul_grain(n_groups, bytes / n_groups, n_rows, ctx.pool->size()));
  const int n_units = s.n_heads + 2 * s.n_kv_heads;  // heads of q, k and v of one row
  Chunks unit_chunks(n_rows * n_units, 4);

  ctx.pool->run([&](Team& team) {
    const ActRows act =
        make_act_rows(ctx, team, row_chunks, scratch, {&s.q, &s.k, &s.v}, n_rows, s.d_model,
                      [&](int64_t row, float* out) -> const float* {
                        if (!out) return scratch.values;
                        ctx.cpu->elementwise.rms_norm(args.x + row * s.d_model, s.norm, s.rms_eps,
                                                      s.d_model, out);
                        return out;
                      });
    run_matmuls(ctx, group_chunks,
                {{&s.q, args.q_out, q_dim}, {&s.k, keys, kv_dim}, {&s.v, values, kv_dim}}, act,
                n_rows, [](const MatmulRun&) {});
    team.barrier();

    auto finish = [&](float* head, int64_t index, const float* bias, const float* norm,
                      const float* rope) {
      if (bias) ctx.cpu->elementwise.add(bias + index * s.head_dim, s.head_dim, head);
      if (norm) ctx.cpu->elementwise.rms_norm(head, norm, s.rms_eps, s.head_dim, head);
      if (rope) rotate(s, rope, head);
    };
    for (int64_t begin, end; unit_chunks.next(begin, end);) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t row = unit / n_units;
        const int64_t head = unit % n_units;
        const float* rope = args.rope + row * s.rope_dim;
        if (head < s.n_heads) {
          finish(args.q_out + row * q_dim + head * s.head_dim, head, s.q_bias, s.q_norm, rope);
          continue;
        }
        const bool is_key = head < s.n_heads + s.n_kv_heads;
        const int kv_head = static_cast<int>((head - s.n_heads) % s.n_kv_heads);
        float* x = (is_key ? keys : values) + row * kv_dim + kv_head * s.head_dim;
        finish(x, kv_head, is_key ? s.k_bias : s.v_bias, is_key ? s.k_norm : nullptr,
               is_key ? rope : nullptr);
        const int32_t position = step.pos[row];
        const int64_t tile =
            s.kv.tile_offset(step.pages_of(static_cast<int32_t>(row)), kv_head, position);
        store_head(*ctx.cpu, s.kv.geometry, x, position % kKvTileTokens, is_key,
                   (is_key ? s.kv.k : s.kv.v) + tile);
      }
    }
  });
}

}  // namespace fathom

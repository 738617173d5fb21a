// SPDX-License-Identifier: Apache-2.0
// The product leaves raw q, k and v; then heads are normed, rotated and stored. For few rows of the
// step the warp that finishes the last row group of a head does that (one counter a head finds it),
// so that the op is one launch; for more, a second kernel with a warp for each row and head.
#include "base/check.hpp"
#include "kernels/common/kv_store.cuh"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "kernels/quant/finish_heads_kernel.cuh"
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom {
namespace {

constexpr int kFinishWarps = 8;  // of a block of the second kernel

// A warp for each row of the step (x) and head (y).
__global__ void __launch_bounds__(32 * kFinishWarps)
    finish_heads_kernel(const __grid_constant__ FinishHeads op) {
  __shared__ float heads[kFinishWarps][kMaxHeadDim];
  cuda::pdl_launch_dependents();
  cuda::pdl_wait();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = static_cast<int>(blockIdx.x) * kFinishWarps + warp;
  int head = static_cast<int>(blockIdx.y);
  const int part = op.part_of_head(head);
  if (row < op.n_rows) op.finish(part, head, row, heads[warp]);
}

}  // namespace

int64_t workspace_bytes_cuda(const NormQkvRopeAppendArgs::Static& s) {
  const int64_t kv_dim = int64_t{s.n_kv_heads} * s.head_dim;
  return cuda::matmul_acts_bytes({&s.q, &s.k, &s.v}, s.max_rows) +
         2 * ((s.max_rows * kv_dim * 4 + 63) / 64 * 64);
}

void norm_qkv_rope_append_cuda(ExecContext& ctx, const NormQkvRopeAppendArgs& args) {
  const NormQkvRopeAppendArgs::Static& s = args.s;
  const StepState& step = *args.step;
  FATHOM_CHECK(s.head_dim % quant::kMmaRows == 0 && s.head_dim <= kMaxHeadDim,
               "head_dim must be a multiple of 16, at most 256");
  const int64_t kv_dim = int64_t{s.n_kv_heads} * s.head_dim;
  Workspace workspace = ctx.workspace;
  auto* acts = workspace.take<std::byte>(cuda::matmul_acts_bytes({&s.q, &s.k, &s.v}, s.max_rows));
  float* keys = workspace.take<float>(s.max_rows * kv_dim);
  float* values = workspace.take<float>(s.max_rows * kv_dim);
  Workspace counters = ctx.counters;
  const int n_rows = static_cast<int>(step.n_rows);
  FinishHeads op{};
  op.head_dim = s.head_dim;
  op.rope_dim = s.rope_dim;
  op.n_rows = n_rows;
  op.interleaved = s.pairs == RopePairs::interleaved;
  op.eps = s.rms_eps;
  static_assert(kFinishKey == 0 && kFinishValue == 1 && kFinishQuery == 2);
  const float* biases[3] = {s.k_bias, s.v_bias, s.q_bias};
  const float* norms[3] = {s.k_norm, nullptr, s.q_norm};
  float* raw[3] = {keys, values, args.q_out};
  for (int part = 0; part < 3; ++part) {
    op.bias[part] = biases[part];
    op.norm[part] = norms[part];
    op.raw[part] = raw[part];
    op.n_heads[part] = part == kFinishQuery ? s.n_heads : s.n_kv_heads;
    op.dim[part] = op.n_heads[part] * s.head_dim;
  }
  op.kv = s.kv;
  op.pos = step.pos;
  op.slot = step.slot;
  op.page_table = step.page_table;
  op.max_pages = step.max_pages;
  op.rope = args.rope;
  const int n_heads = s.n_heads + 2 * s.n_kv_heads;
  // Of heads, or of 64 dims of those of k and v.
  op.counters = counters.take<unsigned>(n_heads + 2 * s.n_kv_heads * (s.head_dim / 64));
  quant::MatmulParams p =
      cuda::matmul_params({&s.k, &s.v, &s.q}, 1, n_rows, args.x, s.norm, s.rms_eps);
  const bool pairs = !op.interleaved && s.rope_dim == s.head_dim && !s.q_norm && !s.k_norm &&
                     s.head_dim % (2 * quant::kMmaRows) == 0 &&
                     (s.kv.geometry.format != KvFormat::q8_0 || s.head_dim % 64 == 0);
  p.scratch_bytes = FinishHeads::kScratchBytes;  // pairs need none
  const int columns = cuda::matmul_columns(p);
  if (pairs && columns == 1) {
    p.n_paired = 3;
    p.pair_stride = s.head_dim / (2 * quant::kMmaRows);
    return cuda::launch_matmul_one(p, FinishPairs{op}, ctx.stream.handle);
  }
  cuda::launch_matmul(p, acts, op, ctx.stream.handle);
  if (columns > quant::kUnitsDoneColumns) {
    const dim3 grid(static_cast<unsigned>((n_rows + kFinishWarps - 1) / kFinishWarps),
                    static_cast<unsigned>(n_heads));
    cuda::launch(finish_heads_kernel, grid, dim3(32 * kFinishWarps), 0, ctx.stream.handle, op);
  }
}

}  // namespace fathom

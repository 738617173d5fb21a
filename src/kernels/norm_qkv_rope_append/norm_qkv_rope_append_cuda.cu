// SPDX-License-Identifier: Apache-2.0
// The product leaves raw q, k and v; the block that finishes the last row group of a head norms and
// rotates the head and stores it. One counter a head (and 8 to 32 rows of the step) finds it.
#include "base/check.hpp"
#include "kernels/common/kv_store.cuh"
#include "kernels/norm_qkv_rope_append/norm_qkv_rope_append.hpp"
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int64_t kMaxRowsPerLaunch = 2048;  // for which there are counters

struct FinishHeads {
  static constexpr bool kWholeBlock = true;  // a head has many rows to finish
  int head_dim, rope_dim, n_rows, rows_per_block;
  bool interleaved;
  float eps;
  const float *bias[3], *norm[3];
  float* raw[3];  // q (the output), k, v: [n_rows, heads * head_dim]
  int dim[3];     // heads * head_dim
  int first_head[3], n_groups[3];
  KvLayerView kv;
  const int32_t *pos, *slot, *page_table;
  int max_pages;
  const float* rope;   // [n_rows, rope_dim]
  unsigned* counters;  // [heads of q, k and v][gridDim.y], zero between launches

  __device__ void operator()(int part, int row, int col, const float* sums) const {
    const float x = bias[part] ? sums[0] + __ldg(bias[part] + row) : sums[0];
    raw[part][static_cast<int64_t>(col) * dim[part] + row] = x;
  }

  __device__ void unit_done(int unit) const {
    int part = 0, group = unit;
    while (group >= n_groups[part]) group -= n_groups[part++];
    const int head = group * quant::kMmaRows / head_dim;
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned& counter = counters[(first_head[part] + head) * gridDim.y + blockIdx.y];
      last = atomicAdd(&counter, 1u) + 1 == static_cast<unsigned>(head_dim / quant::kMmaRows);
      if (last) counter = 0;
    }
    __syncthreads();
    if (last) {
      __threadfence();
      finish(part, head);
    }
    __syncthreads();  // `last` is written again by the next unit
  }

  __device__ void finish(int part, int head) const {
    __shared__ float heads[quant::kMatmulWarps][kMaxHeadDim];
    const int begin = static_cast<int>(blockIdx.y) * rows_per_block;
    const int end = min(begin + rows_per_block, n_rows);
    for (int row = begin + static_cast<int>(threadIdx.x) / 32; row < end;
         row += quant::kMatmulWarps) {
      finish_row(part, head, row, heads[threadIdx.x / 32]);
    }
  }

  // One head of one row of the step, by a warp; x: shared memory of the warp.
  __device__ void finish_row(int part, int head, int row, float* x) const {
    const int lane = threadIdx.x % 32;
    float squares = 0.0f;
    float* of = raw[part] + static_cast<int64_t>(row) * dim[part] + head * head_dim;
    for (int i = lane; i < head_dim; i += 32) {
      x[i] = __ldcg(of + i);  // other blocks wrote it: not from a stale line of this one's L1
      squares = __fmaf_rn(x[i], x[i], squares);
    }
    if (norm[part]) {
      for (int distance = 16; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(0xffffffffu, squares, distance);
      }
      const float scale = 1.0f / sqrtf(squares / static_cast<float>(head_dim) + eps);
      for (int i = lane; i < head_dim; i += 32) x[i] = x[i] * scale * norm[part][i];
    }
    __syncwarp();
    if (part < 2) rotate(row, x);
    __syncwarp();
    if (part == 0) {
      for (int i = lane; i < head_dim; i += 32) of[i] = x[i];
    } else if (pos[row] >= 0) {
      const int32_t* pages = page_table + static_cast<int64_t>(slot[row]) * max_pages;
      std::byte* tile = (part == 1 ? kv.k : kv.v) + kv.tile_offset(pages, head, pos[row]);
      cuda::warp_store_kv(kv.geometry, x, pos[row] % kKvTileTokens, part == 1, tile);
    }
    __syncwarp();
  }

  // All heads of all rows, after a product of many rows: a launch of its own.
  void finish_all(void* stream) const;

  __device__ void rotate(int row, float* x) const {
    const float* angles = rope + static_cast<int64_t>(row) * rope_dim;
    const int half = rope_dim / 2;
    for (int i = threadIdx.x % 32; i < half; i += 32) {
      float& a = interleaved ? x[2 * i] : x[i];
      float& b = interleaved ? x[2 * i + 1] : x[i + half];
      const float cosine = angles[2 * i], sine = angles[2 * i + 1];
      const float turned = a * cosine - b * sine;
      b = a * sine + b * cosine;
      a = turned;
    }
  }
};

constexpr int kFinishWarps = 8;

// A warp for a head of a row of the step: grid {heads of q, k and v, rows}.
__global__ void __launch_bounds__(32 * kFinishWarps) finish_heads_kernel(const FinishHeads op) {
  __shared__ float heads[kFinishWarps][kMaxHeadDim];
  cuda::pdl_wait();
  cuda::pdl_launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = static_cast<int>(blockIdx.y) * kFinishWarps + warp;
  int part = 2, head = static_cast<int>(blockIdx.x);
  while (head < op.first_head[part]) --part;
  if (row < op.n_rows) op.finish_row(part, head - op.first_head[part], row, heads[warp]);
}

void FinishHeads::finish_all(void* stream) const {
  const int n_heads = first_head[2] + dim[2] / head_dim;
  const dim3 grid(static_cast<unsigned>(n_heads),
                  static_cast<unsigned>((n_rows + kFinishWarps - 1) / kFinishWarps));
  cuda::launch(finish_heads_kernel, grid, dim3(32 * kFinishWarps), 0, stream, *this);
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
  const int q_dim = s.n_heads * s.head_dim, kv_dim = s.n_kv_heads * s.head_dim;
  Workspace workspace = ctx.workspace;
  auto* acts = workspace.take<std::byte>(cuda::matmul_acts_bytes({&s.q, &s.k, &s.v}, s.max_rows));
  float* keys = workspace.take<float>(s.max_rows * kv_dim);
  float* values = workspace.take<float>(s.max_rows * kv_dim);
  Workspace counters = ctx.counters;
  const int n_heads = s.n_heads + 2 * s.n_kv_heads;
  const auto product = [&](int64_t first, int64_t n) {
    return cuda::matmul_params({&s.q, &s.k, &s.v}, 1, n, args.x + first * s.d_model, s.norm,
                               s.rms_eps);
  };
  const bool counts = !cuda::takes_prefill(product(0, step.n_rows));
  const int64_t most_rows = counts ? kMaxRowsPerLaunch : step.n_rows;
  for (int64_t first = 0; first < step.n_rows; first += most_rows) {
    const int n = static_cast<int>(std::min(most_rows, step.n_rows - first));
    FinishHeads op{};
    op.head_dim = s.head_dim;
    op.rope_dim = s.rope_dim;
    op.n_rows = n;
    op.rows_per_block = cuda::matmul_columns(n);
    op.interleaved = s.pairs == RopePairs::interleaved;
    op.eps = s.rms_eps;
    const float* biases[3] = {s.q_bias, s.k_bias, s.v_bias};
    const float* norms[3] = {s.q_norm, s.k_norm, nullptr};
    float* raw[3] = {args.q_out + first * q_dim, keys, values};
    const int dims[3] = {q_dim, kv_dim, kv_dim};
    const int first_heads[3] = {0, s.n_heads, s.n_heads + s.n_kv_heads};
    for (int part = 0; part < 3; ++part) {
      op.bias[part] = biases[part];
      op.norm[part] = norms[part];
      op.raw[part] = raw[part];
      op.dim[part] = dims[part];
      op.first_head[part] = first_heads[part];
      op.n_groups[part] = dims[part] / quant::kMmaRows;
    }
    op.kv = s.kv;
    op.pos = step.pos + first;
    op.slot = step.slot + first;
    op.page_table = step.page_table;
    op.max_pages = step.max_pages;
    op.rope = args.rope + first * s.rope_dim;
    const int n_columns = (n + op.rows_per_block - 1) / op.rows_per_block;
    if (counts) {
      op.counters = Workspace(counters).take<unsigned>(int64_t{n_heads} * n_columns);
    }
    cuda::launch_matmul(product(first, n), acts, op, ctx.stream.handle);
  }
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The activations of many rows, made once for all blocks of the product that follows.
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom::cuda {
namespace {

// A block of threads for each row (x), or without a norm for each kActCols columns of it (y).
__global__ void __launch_bounds__(quant::kActThreads)
    matmul_acts_kernel(const __grid_constant__ quant::MatmulParams p, int n_cols) {
  __shared__ float shared[quant::kActSums];
  pdl_launch_dependents();
  const quant::ActMaker maker(p);
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * quant::kActCols;
  const int end =
      p.norm ? quant::padded_cols(p) : min(quant::padded_cols(p), begin + quant::kActCols);
  maker.make(row, p.acts, row, n_cols, end, shared, begin);
}

}  // namespace

void make_matmul_acts(const quant::MatmulParams& p, int n_cols, void* stream) {
  const int n_parts = p.norm ? 1 : (quant::padded_cols(p) + quant::kActCols - 1) / quant::kActCols;
  launch(matmul_acts_kernel, dim3(static_cast<unsigned>(p.n_rows), static_cast<unsigned>(n_parts)),
         dim3(quant::kActThreads), 0, stream, p, n_cols);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The activations of many rows, made once for all blocks of the product that follows.
#include "kernels/quant/matmul_launch_kernel.cuh"

namespace fathom::cuda {
namespace {

// A block of threads for each row.
__global__ void __launch_bounds__(quant::kActThreads)
    matmul_acts_kernel(const __grid_constant__ quant::MatmulParams p) {
  __shared__ float shared[quant::kActWarps];
  pdl_launch_dependents();
  const quant::ActMaker maker(p);
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  maker.make(row, p.acts, row, p.n_rows, quant::padded_cols(p), shared);
}

}  // namespace

void make_matmul_acts(const quant::MatmulParams& p, void* stream) {
  launch(matmul_acts_kernel, dim3(static_cast<unsigned>(p.n_rows)), dim3(quant::kActThreads), 0,
         stream, p);
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of gate and up.
#pragma once

#include "kernels/quant/matmul_kernel.cuh"
#include "tensor/portable_math.hpp"

namespace fathom {

// Without the branches of the portable exp, which are a tenth of a product of many rows. It has
// linkage since nothing uses it where no kernel takes many rows (matmul_prefill_kernel.cuh), which
// nvcc would report.
struct FastSiluTimes {
  float* h;  // [n_rows, d_ff]
  int d_ff;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    h[static_cast<int64_t>(col) * d_ff + row] =
        __fdividef(sums[0], 1.0f + __expf(-sums[0])) * sums[1];
  }
};

struct SiluTimes {
  float* h;  // [n_rows, d_ff]
  int d_ff;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    h[static_cast<int64_t>(col) * d_ff + row] = portable_silu(sums[0]) * sums[1];
  }
  FastSiluTimes of_many_rows() const { return {h, d_ff}; }
};

// Of one row, into what down's product reads: 32 rows are a block of its activations.
struct SiluTimesCodes {
  std::byte* codes;  // quant::act_layout of d_ff columns
  quant::ActInfo* info;
  __device__ float value(const float* sums) const { return portable_silu(sums[0]) * sums[1]; }
  __device__ void store(int block, float x) const {
    quant::store_block(x, codes + int64_t{block} * quant::kMmaBlock, info + block);
  }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// What becomes of sums that enter the residual stream.
#pragma once

#include <cstdint>

#include "kernels/common/cxx20.cuh"

namespace fathom::cuda {

// x[col][row] += sum, then the bias.
struct AddToResidual {
  float* x;           // [n_rows, rows]
  const float* bias;  // [rows] or null
  int rows;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    write(0, row, col, read(0, row, col), sums, true);
  }
  // In halves, so that the reads of many values are in flight together.
  __device__ float read(int, int row, int col) const { return __ldcg(&at(row, col)); }
  __device__ void write(int, int row, int col, float before, const float* sums, bool stores) const {
    float total = before + sums[0];
    if (bias && stores) total += __ldg(bias + row);
    if (stores) at(row, col) = total;
  }
  __device__ float& at(int row, int col) const { return x[static_cast<int64_t>(col) * rows + row]; }
};

}  // namespace fathom::cuda

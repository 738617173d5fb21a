// SPDX-License-Identifier: Apache-2.0
// What becomes of the sums of the head.
#pragma once

#include <cstdint>

#include "kernels/common/cxx20.cuh"

namespace fathom {

struct StoreLogits {
  float* logits;  // [n_out, vocab_size]
  int64_t vocab_size;
  __device__ void operator()(int, int row, int col, const float* sums) const {
    logits[col * vocab_size + row] = sums[0];
  }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Activations as the quantised products read them: 32 values as int8 with one f32 scale.
#pragma once

#include <cstdint>

namespace fathom {

inline constexpr int kActBlockElems = 32;

struct alignas(64) ActBlock {
  float d;                // value = d * q, d = max|x| / 127; NaN if a value is not finite
  float d_sum;            // d * (sum of q), for formats with a minimum
  int32_t minus_sum;      // -(sum of q), for formats with an offset
  int32_t minus_half[2];  // -(sums of q[0..16) and q[16..32)), for formats with two scales a block
  int16_t minus_pair[2];  // the same in 16 bits
  int8_t q[kActBlockElems];
};
static_assert(sizeof(ActBlock) == 64);

// Rows of activations for a product: blocks for quantised weights, floats for float weights.
struct ActRows {
  const ActBlock* blocks;  // [n_rows, cols/32]
  const float* values;     // [n_rows, cols]
  int64_t cols;
};

}  // namespace fathom

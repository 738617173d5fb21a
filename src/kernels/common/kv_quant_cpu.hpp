// SPDX-License-Identifier: Apache-2.0
// 32 values to a block of a q8_0 cache, as tensor/kv_view.hpp defines it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/half.hpp"

namespace fathom {

inline void quantize_kv(const float* x, int8_t* codes, uint16_t& scale) {
  constexpr uint16_t kNanF16 = 0x7e00;
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite &= std::isfinite(x[i]);
  }
  scale = f32_to_f16(largest / 127.0f);
  const float d = f16_to_f32(scale);
  if (!finite || !std::isfinite(d)) {
    scale = kNanF16;
    std::fill_n(codes, 32, int8_t{0});
    return;
  }
  const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float code = std::rint(x[i] * inverse);
    codes[i] = static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f));
  }
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Values to codes and scales of a q8_0 cache (a block of 32) or of an fp8_e4m3 cache (a head), as
// tensor/kv_view.hpp defines them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/e4m3.hpp"
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

inline void quantize_kv_e4m3(const float* x, int n, uint8_t* codes, float& scale) {
  uint32_t largest = 0;  // as bits: NaN is above all
  for (int i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  scale = e4m3_scale(std::bit_cast<float>(largest));
  for (int i = 0; i < n; ++i) codes[i] = e4m3_code(x[i], scale);
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Normalisation, activation quantisation and the small vector loops, for any instruction set.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/common/cpu_kernels.hpp"
#include "kernels/common/vector_math.hpp"
#include "tensor/half.hpp"

namespace fathom {

template <class V>
struct Elementwise {
  using F = typename V::F;

  static void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
    auto squares = Lanes16<V>::set1(0.0f);
    const int64_t whole = n / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16) {
      for (int h = 0; h < Lanes16<V>::kVectors; ++h) {
        const F v = V::load(x + i + h * V::kLanes);
        squares.v[h] = V::fma(v, v, squares.v[h]);
      }
    }
    float total = squares.sum();
    for (int64_t i = whole; i < n; ++i) total = __builtin_fmaf(x[i], x[i], total);
    const float scale = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps);
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      V::store(out + i, V::mul(V::mul(V::load(x + i), V::set1(scale)), V::load(weight + i)));
    }
    for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
  }

  // A block with a NaN or an infinity becomes d = d_sum = NaN with codes of 0, so that every
  // product with it is NaN.
  static void quantize(const float* x, int64_t n, ActBlock* out) {
    constexpr int kVectors = kActBlockElems / V::kLanes;
    for (int64_t b = 0; b < n / kActBlockElems; ++b, ++out, x += kActBlockElems) {
      F v[kVectors];
      // As integers the bits of |x| have the order of the values, with NaN above infinity; a
      // maximum of floats would lose NaN.
      auto largest = V::set1_i32(0);
      for (int i = 0; i < kVectors; ++i) {
        v[i] = V::load(x + i * V::kLanes);
        largest = V::max_i32(largest, V::as_i32(V::abs(v[i])));
      }
      const float amax = std::bit_cast<float>(V::max_of_i32(largest));
      if (!(amax <= std::numeric_limits<float>::max())) {
        *out = {};
        out->d = out->d_sum = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      const float inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
      out->d = amax / 127.0f;
      typename V::I codes[kVectors];
      for (int i = 0; i < kVectors; ++i) {
        codes[i] = V::to_i32(V::round(V::mul(v[i], V::set1(inverse))));
      }
      V::store_codes(out->q, codes);
      int32_t sums[2];
      for (int half = 0; half < 2; ++half) {
        auto sum = codes[half * kVectors / 2];
        for (int i = 1; i < kVectors / 2; ++i) {
          sum = V::add_i32(sum, codes[half * kVectors / 2 + i]);
        }
        sums[half] = V::sum_i32(sum);
      }
      out->minus_sum = -(sums[0] + sums[1]);
      for (int half = 0; half < 2; ++half) {
        out->minus_half[half] = -sums[half];
        out->minus_pair[half] = static_cast<int16_t>(-sums[half]);
      }
      out->d_sum = out->d * static_cast<float>(sums[0] + sums[1]);
    }
  }

  static void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      V::store(out + i, V::mul(vector_silu<V>(V::load(gate + i)), V::load(up + i)));
    }
    for (; i < n; ++i) out[i] = portable_silu(gate[i]) * up[i];
  }

  static void add(const float* y, int64_t n, float* x) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      V::store(x + i, V::add(V::load(x + i), V::load(y + i)));
    }
    for (; i < n; ++i) x[i] += y[i];
  }

  static void to_f16(const float* x, int64_t n, uint16_t* out) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::store_f16(out + i, V::load(x + i));
    for (; i < n; ++i) out[i] = f32_to_f16(x[i]);
  }

  static void exp(const float* x, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) V::store(out + i, vector_exp<V>(V::load(x + i)));
    for (; i < n; ++i) out[i] = portable_exp(x[i]);
  }

  static constexpr ElementwiseKernels table() {
    return {rms_norm, quantize, silu_mul, add, to_f16, exp};
  }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The vector operations that the kernels are written in, as loops over lanes: the portable
// instruction set and the meaning of the others. F is kLanes floats, I is kLanes 32-bit words,
// whose four bytes are the operands of dot_u8 and dot_s8. All sets give the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/common/act_block.hpp"
#include "tensor/e4m3.hpp"
#include "tensor/half.hpp"

namespace fathom {

struct Scalar {
  static constexpr const char* kName = "scalar";
  static constexpr int kLanes = 8;
  static constexpr int kMaxColumns = 1;  // activation rows that one pass over a weight tile serves
  static constexpr int kPrefetchBytes = 0;
  static constexpr int kStreams = 1;
  static constexpr int kAttnRows = 1;  // query rows that one pass over a cache tile serves
  struct F {
    float v[kLanes];
  };
  struct I {
    int32_t v[kLanes];
  };

  template <class Fn>
  static F map(Fn fn) {
    F out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = fn(i);
    return out;
  }
  template <class Fn>
  static I map_i(Fn fn) {
    I out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = fn(i);
    return out;
  }

  static uint32_t word(const I& a, int i) { return static_cast<uint32_t>(a.v[i]); }

  static F set1(float x) {
    return map([&](int) { return x; });
  }
  static F load(const float* p) {
    return map([&](int i) { return p[i]; });
  }
  static void store(float* p, F x) { std::memcpy(p, x.v, sizeof x.v); }
  static F add(F a, F b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F max(F a, F b) {  // b where a is NaN or both are zero, as vmaxps
    return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F min(F a, F b) {
    return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(F a) {
    return map([&](int i) { return std::fabs(a.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return map([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  static F round(F a) {
    return map([&](int i) { return std::rint(a.v[i]); });
  }
  // a where x < y, else b
  static F select_less(F x, F y, F a, F b) {
    return map([&](int i) { return x.v[i] < y.v[i] ? a.v[i] : b.v[i]; });
  }
  // The first n lanes of a, the others of b.
  static F select_first(int n, F a, F b) {
    return map([&](int i) { return i < n ? a.v[i] : b.v[i]; });
  }
  static F load_f16(const uint16_t* p) {
    return map([&](int i) { return f16_to_f32(p[i]); });
  }
  static F load_bf16(const uint16_t* p) {
    return map([&](int i) { return bf16_to_f32(p[i]); });
  }

  // 1/256 of codes that are not NaN: the f16 with the code's bits has another bias.
  static F load_e4m3(const uint8_t* p) {
    return map([&](int i) { return e4m3_to_f32(p[i]) * 0x1p-8f; });
  }

  static void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(x.v[i]);
  }

  static I set1_i32(int32_t x) {
    return map_i([&](int) { return x; });
  }
  static I load_i32(const void* p) {
    I out;
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  static I load_u8(const uint8_t* p) {  // zero-extended bytes
    return map_i([&](int i) { return static_cast<int32_t>(p[i]); });
  }
  static I load_i8(const int8_t* p) {  // sign-extended bytes
    return map_i([&](int i) { return static_cast<int32_t>(p[i]); });
  }
  // Two bytes a lane, each widened to 16 bits, the first in the low half.
  static I load_u8x2(const uint8_t* p) {
    return map_i([&](int i) { return p[2 * i] | p[2 * i + 1] << 16; });
  }
  static I load_i8x2(const int8_t* p) {
    return map_i([&](int i) { return (p[2 * i] & 0xffff) | p[2 * i + 1] * 65536; });
  }
  static I bit_and(I a, I b) {
    return map_i([&](int i) { return a.v[i] & b.v[i]; });
  }
  static I bit_or(I a, I b) {
    return map_i([&](int i) { return a.v[i] | b.v[i]; });
  }
  template <int N>
  static I shift_right(I a) {
    return map_i([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> N); });
  }
  template <int N>
  static I shift_left(I a) {
    return map_i([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << N); });
  }
  static I add_i32(I a, I b) {
    return map_i([&](int i) { return static_cast<int32_t>(word(a, i) + word(b, i)); });
  }
  static I sub_i32(I a, I b) {
    return map_i([&](int i) { return static_cast<int32_t>(word(a, i) - word(b, i)); });
  }
  static I mul_i32(I a, I b) {
    return map_i([&](int i) { return static_cast<int32_t>(word(a, i) * word(b, i)); });
  }
  static I max_i32(I a, I b) {
    return map_i([&](int i) { return std::max(a.v[i], b.v[i]); });
  }
  static F to_f32(I a) {
    return map([&](int i) { return static_cast<float>(a.v[i]); });
  }
  static I to_i32(F a) {  // of a value already rounded; NaN gives the lowest integer
    return map_i([&](int i) {
      return std::fabs(a.v[i]) < 0x1p31f ? static_cast<int32_t>(a.v[i]) : INT32_MIN;
    });
  }
  static F as_f32(I a) { return std::bit_cast<F>(a); }
  static I as_i32(F a) { return std::bit_cast<I>(a); }
  // Every byte b of x (0..15) becomes table[b].
  static I lookup16(const int8_t* table, I x) {
    I out;
    uint8_t bytes[4 * kLanes];
    std::memcpy(bytes, x.v, sizeof bytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(table[byte & 15]);
    std::memcpy(out.v, bytes, sizeof bytes);
    return out;
  }

  static int32_t sum_i32(I a) {
    int32_t out = 0;
    for (int32_t lane : a.v) out += lane;
    return out;
  }
  static int32_t max_of_i32(I a) {
    int32_t out = a.v[0];
    for (int32_t lane : a.v) out = std::max(out, lane);
    return out;
  }
  // 32 values within -128..127, 32/kLanes vectors.
  static void store_codes(int8_t* out, const I* codes) {
    for (int i = 0; i < 32; ++i) out[i] = static_cast<int8_t>(codes[i / kLanes].v[i % kLanes]);
  }

  // A dot product over N words of unsigned bytes <= kMaxU with the activation bytes a[4*N]: lane r
  // gets start plus the sum over words w and bytes b of words[w].byte[b] of lane r times a[4*w+b].
  template <int kMaxU, int N>
  static I dot_u8(I start, const I* words, const int8_t* a) {
    return map_i([&](int lane) {
      int32_t sum = start.v[lane];
      for (int w = 0; w < N; ++w) {
        for (int b = 0; b < 4; ++b) {
          sum += static_cast<int32_t>((word(words[w], lane) >> (8 * b)) & 0xff) * a[4 * w + b];
        }
      }
      return sum;
    });
  }
  // The same for signed bytes, made ready by prepare_s8; minus_sum is -(sum of a).
  static I prepare_s8(I w) { return w; }
  template <int N>
  static I dot_s8(const I* words, const int8_t* a, int32_t minus_sum) {
    (void)minus_sum;
    return map_i([&](int lane) {
      int32_t sum = 0;
      for (int w = 0; w < N; ++w) {
        for (int b = 0; b < 4; ++b) {
          sum += static_cast<int8_t>((word(words[w], lane) >> (8 * b)) & 0xff) * a[4 * w + b];
        }
      }
      return sum;
    });
  }
  // The two scales (-128..127) of a 32-value block whose codes stand kOffset above their values.
  struct Scales {
    I first, second;
  };
  template <int kOffset>
  static Scales scales(I pair) {
    return {map_i([&](int i) { return int32_t{static_cast<int16_t>(pair.v[i])}; }),
            map_i([&](int i) { return pair.v[i] >> 16; })};
  }
  // scale0 * (sum of (code - kOffset) a over 16 values) + scale1 * (the other 16), exact in f32.
  template <int kMaxU, int kOffset>
  static F dot_scaled(const I* words, const ActBlock& a, const Scales& s) {
    const I sum0 = dot_u8<kMaxU, 4>(set1_i32(kOffset * a.minus_half[0]), words, a.q);
    const I sum1 = dot_u8<kMaxU, 4>(set1_i32(kOffset * a.minus_half[1]), words + 4, a.q + 16);
    return to_f32(add_i32(mul_i32(s.first, sum0), mul_i32(s.second, sum1)));
  }
  // min0 * -(sum of 16 a) + min1 * -(sum of the other 16), mins 0..15 in 16 bits each.
  static F dot_mins(I mins, const ActBlock& a) {
    return to_f32(map_i([&](int i) {
      return (mins.v[i] & 0xffff) * a.minus_half[0] + (mins.v[i] >> 16) * a.minus_half[1];
    }));
  }
  static void prefetch(const void* p) { __builtin_prefetch(p); }
};

}  // namespace fathom

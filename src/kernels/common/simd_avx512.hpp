// SPDX-License-Identifier: Apache-2.0
// The vector operations of simd_scalar.hpp in AVX-512 with VNNI.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/common/act_block.hpp"

namespace fathom {

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kLanes = 16;
  static constexpr int kMaxColumns = 8;
  static constexpr int kAttnRows = 6;
  static constexpr int kPrefetchBytes = 2048;  // ahead in each stream of weights
  static constexpr int kStreams = 2;           // row groups side by side
  using F = __m512;
  using I = __m512i;

  [[gnu::always_inline]] static F set1(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static F load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  [[gnu::always_inline]] static F add(F a, F b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static F div(F a, F b) { return _mm512_div_ps(a, b); }
  [[gnu::always_inline]] static F max(F a, F b) { return _mm512_max_ps(a, b); }
  [[gnu::always_inline]] static F min(F a, F b) { return _mm512_min_ps(a, b); }
  [[gnu::always_inline]] static F abs(F a) { return _mm512_abs_ps(a); }
  [[gnu::always_inline]] static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  [[gnu::always_inline]] static F select_less(F x, F y, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
  }
  [[gnu::always_inline]] static F select_first(int n, F a, F b) {
    const __mmask16 mask = static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
    return _mm512_mask_blend_ps(mask, b, a);
  }
  [[gnu::always_inline]] static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static F load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  [[gnu::always_inline]] static F load_e4m3(const uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
    return _mm512_cvtph_ps(_mm256_and_si256(shifted, mask));
  }

  [[gnu::always_inline]] static void store_f16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  [[gnu::always_inline]] static I set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
  [[gnu::always_inline]] static I load_i32(const void* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] static I load_u8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I load_i8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I load_u8x2(const uint8_t* p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static I load_i8x2(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  [[gnu::always_inline]] static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  template <int N>
  [[gnu::always_inline]] static I shift_right(I a) {
    return _mm512_srli_epi32(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static I shift_left(I a) {
    return _mm512_slli_epi32(a, N);
  }
  [[gnu::always_inline]] static I add_i32(I a, I b) { return _mm512_add_epi32(a, b); }
  [[gnu::always_inline]] static I sub_i32(I a, I b) { return _mm512_sub_epi32(a, b); }
  [[gnu::always_inline]] static I mul_i32(I a, I b) { return _mm512_mullo_epi32(a, b); }
  [[gnu::always_inline]] static I max_i32(I a, I b) { return _mm512_max_epi32(a, b); }
  [[gnu::always_inline]] static F to_f32(I a) { return _mm512_cvtepi32_ps(a); }
  [[gnu::always_inline]] static I to_i32(F a) { return _mm512_cvtps_epi32(a); }
  [[gnu::always_inline]] static F as_f32(I a) { return _mm512_castsi512_ps(a); }
  [[gnu::always_inline]] static I as_i32(F a) { return _mm512_castps_si512(a); }
  [[gnu::always_inline]] static I lookup16(const int8_t* table, I x) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), x);
  }

  [[gnu::always_inline]] static int32_t sum_i32(I a) { return _mm512_reduce_add_epi32(a); }
  [[gnu::always_inline]] static int32_t max_of_i32(I a) { return _mm512_reduce_max_epi32(a); }
  [[gnu::always_inline]] static void store_codes(int8_t* out, const I* codes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(codes[0]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm512_cvtsepi32_epi8(codes[1]));
  }

  [[gnu::always_inline]] static I broadcast4(const int8_t* a) {
    int32_t word;
    std::memcpy(&word, a, 4);
    return _mm512_set1_epi32(word);
  }

  template <int N>
  [[gnu::always_inline]] static I dot_words(I sum, const I* words, const int8_t* a) {
#pragma GCC unroll 8
    for (int w = 0; w < N; ++w) sum = _mm512_dpbusd_epi32(sum, words[w], broadcast4(a + 4 * w));
    return sum;
  }
  template <int kMaxU, int N>
  [[gnu::always_inline]] static I dot_u8(I start, const I* words, const int8_t* a) {
    return dot_words<N>(start, words, a);
  }
  // dpbusd wants unsigned weights: w + 128, whose excess is 128 times the activation sum.
  [[gnu::always_inline]] static I prepare_s8(I word) {
    return _mm512_xor_si512(word, _mm512_set1_epi32(static_cast<int32_t>(0x80808080u)));
  }
  template <int N>
  [[gnu::always_inline]] static I dot_s8(const I* words, const int8_t* a, int32_t minus_sum) {
    return dot_words<N>(_mm512_slli_epi32(_mm512_set1_epi32(minus_sum), 7), words, a);
  }
  // 32-bit multiplies are slow; sums (16 bits and a few) times scales (8 bits) are exact in f32.
  struct Scales {
    F first, second;
  };
  template <int kOffset>
  [[gnu::always_inline]] static Scales scales(I pair) {
    return {to_f32(_mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16)),
            to_f32(_mm512_srai_epi32(pair, 16))};
  }
  template <int kMaxU, int kOffset>
  [[gnu::always_inline]] static F dot_scaled(const I* words, const ActBlock& a, const Scales& s) {
    const I sum0 = dot_words<4>(times_offset<kOffset>(a.minus_half[0]), words, a.q);
    const I sum1 = dot_words<4>(times_offset<kOffset>(a.minus_half[1]), words + 4, a.q + 16);
    return fma(to_f32(sum1), s.second, mul(to_f32(sum0), s.first));
  }
  template <int kOffset>
  [[gnu::always_inline]] static I times_offset(int32_t x) {
    if constexpr (kOffset == 0) return _mm512_setzero_si512();
    constexpr int kShift = kOffset == 0 ? 0 : std::countr_zero(static_cast<unsigned>(kOffset));
    static_assert(kOffset == 0 || kOffset == 1 << kShift);
    return _mm512_slli_epi32(_mm512_set1_epi32(x), kShift);
  }
  [[gnu::always_inline]] static F dot_mins(I mins, const ActBlock& a) {
    int32_t word;
    std::memcpy(&word, a.minus_pair, 4);
    return to_f32(_mm512_madd_epi16(mins, _mm512_set1_epi32(word)));
  }
  [[gnu::always_inline]] static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace fathom

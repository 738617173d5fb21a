// SPDX-License-Identifier: Apache-2.0
// The vector operations of simd_scalar.hpp in AVX-512 with VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace fathom {

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kLanes = 16;
  static constexpr int kMaxColumns = 8;
  static constexpr int kAttnRows = 6;
  using F = __m512;
  using I = __m512i;

  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F select_less(F x, F y, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
  }
  static F select_first(int n, F a, F b) {
    const __mmask16 mask = static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
    return _mm512_mask_blend_ps(mask, b, a);
  }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }

  static void store_f16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  static I set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
  static I load_i32(const void* p) { return _mm512_loadu_si512(p); }
  static I load_u8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I load_i8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  template <int N>
  static I shift_right(I a) {
    return _mm512_srli_epi32(a, N);
  }
  template <int N>
  static I shift_left(I a) {
    return _mm512_slli_epi32(a, N);
  }
  static I add_i32(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_i32(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I mul_i32(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I max_i32(I a, I b) { return _mm512_max_epi32(a, b); }
  static F to_f32(I a) { return _mm512_cvtepi32_ps(a); }
  static I to_i32(F a) { return _mm512_cvtps_epi32(a); }
  static F as_f32(I a) { return _mm512_castsi512_ps(a); }
  static I as_i32(F a) { return _mm512_castps_si512(a); }
  static I lookup16(const int8_t* table, I x) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), x);
  }

  static I broadcast4(const int8_t* a) {
    int32_t word;
    std::memcpy(&word, a, 4);
    return _mm512_set1_epi32(word);
  }

  // Two chains: one dpbusd waits five cycles for the one before it.
  template <int N>
  static I dot_words(I start, const I* words, const int8_t* a) {
    I even = start;
    I odd = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int w = 0; w < N; w += 2) {
      even = _mm512_dpbusd_epi32(even, words[w], broadcast4(a + 4 * w));
      odd = _mm512_dpbusd_epi32(odd, words[w + 1], broadcast4(a + 4 * w + 4));
    }
    return _mm512_add_epi32(even, odd);
  }
  template <int kMaxU, int N>
  static I dot_u8(const I* words, const int8_t* a) {
    return dot_words<N>(_mm512_setzero_si512(), words, a);
  }
  // dpbusd wants unsigned weights: w + 128, whose excess is 128 times the activation sum.
  static I prepare_s8(I word) {
    return _mm512_xor_si512(word, _mm512_set1_epi32(static_cast<int32_t>(0x80808080u)));
  }
  template <int N>
  static I dot_s8(const I* words, const int8_t* a, int32_t a_sum) {
    return dot_words<N>(_mm512_set1_epi32(-128 * a_sum), words, a);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The vector operations of simd_scalar.hpp in AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/common/act_block.hpp"

namespace fathom {

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kLanes = 8;
  static constexpr int kMaxColumns = 4;
  static constexpr int kAttnRows = 6;
  static constexpr int kPrefetchBytes = 1024;  // ahead in each stream of weights
  static constexpr int kStreams = 2;           // row groups side by side
  using F = __m256;
  using I = __m256i;

  [[gnu::always_inline]] static F set1(float x) { return _mm256_set1_ps(x); }
  [[gnu::always_inline]] static F load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  [[gnu::always_inline]] static F add(F a, F b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  [[gnu::always_inline]] static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static F div(F a, F b) { return _mm256_div_ps(a, b); }
  [[gnu::always_inline]] static F max(F a, F b) { return _mm256_max_ps(a, b); }
  [[gnu::always_inline]] static F min(F a, F b) { return _mm256_min_ps(a, b); }
  [[gnu::always_inline]] static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  [[gnu::always_inline]] static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static F round(F a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  [[gnu::always_inline]] static F select_less(F x, F y, F a, F b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
  }
  [[gnu::always_inline]] static F select_first(int n, F a, F b) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
  }
  [[gnu::always_inline]] static F load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static F load_bf16(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  [[gnu::always_inline]] static F load_e4m3(const uint8_t* p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i mask = _mm_set1_epi16(static_cast<int16_t>(0xbf80));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), mask));
  }

  [[gnu::always_inline]] static void store_f16(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }

  [[gnu::always_inline]] static I set1_i32(int32_t x) { return _mm256_set1_epi32(x); }
  [[gnu::always_inline]] static I load_i32(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  [[gnu::always_inline]] static I load_u8(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I load_i8(const int8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I load_u8x2(const uint8_t* p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I load_i8x2(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  [[gnu::always_inline]] static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  [[gnu::always_inline]] static I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  template <int N>
  [[gnu::always_inline]] static I shift_right(I a) {
    return _mm256_srli_epi32(a, N);
  }
  template <int N>
  [[gnu::always_inline]] static I shift_left(I a) {
    return _mm256_slli_epi32(a, N);
  }
  [[gnu::always_inline]] static I add_i32(I a, I b) { return _mm256_add_epi32(a, b); }
  [[gnu::always_inline]] static I sub_i32(I a, I b) { return _mm256_sub_epi32(a, b); }
  [[gnu::always_inline]] static I mul_i32(I a, I b) { return _mm256_mullo_epi32(a, b); }
  [[gnu::always_inline]] static I max_i32(I a, I b) { return _mm256_max_epi32(a, b); }
  [[gnu::always_inline]] static F to_f32(I a) { return _mm256_cvtepi32_ps(a); }
  [[gnu::always_inline]] static I to_i32(F a) { return _mm256_cvtps_epi32(a); }
  [[gnu::always_inline]] static F as_f32(I a) { return _mm256_castsi256_ps(a); }
  [[gnu::always_inline]] static I as_i32(F a) { return _mm256_castps_si256(a); }
  [[gnu::always_inline]] static I lookup16(const int8_t* table, I x) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), x);
  }

  [[gnu::always_inline]] static int32_t sum_i32(I a) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
  }
  [[gnu::always_inline]] static int32_t max_of_i32(I a) {
    __m128i best = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    best = _mm_max_epi32(best, _mm_unpackhi_epi64(best, best));
    best = _mm_max_epi32(best, _mm_shuffle_epi32(best, 1));
    return _mm_cvtsi128_si32(best);
  }
  [[gnu::always_inline]] static void store_codes(int8_t* out, const I* codes) {
    const I low = _mm256_packs_epi32(codes[0], codes[1]);
    const I high = _mm256_packs_epi32(codes[2], codes[3]);
    const I order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the lanes of the packs
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
  }

  [[gnu::always_inline]] static I broadcast4(const int8_t* a) {
    int32_t word;
    std::memcpy(&word, a, 4);
    return _mm256_set1_epi32(word);
  }

  // vpmaddubsw adds pairs in 16 bits; as many words as cannot overflow are added there before the
  // sums widen to 32 bits.
  template <int kMaxU, int N>
  [[gnu::always_inline]] static I dot_u8(I start, const I* words, const int8_t* a) {
    return dot_times<kMaxU, N>(start, words, a, _mm256_set1_epi16(1));
  }
  // start + factor * dot, the factor (16 bits, twice in each lane) taking the place of the ones in
  // the widening multiply.
  template <int kMaxU, int N>
  [[gnu::always_inline]] static I dot_times(I start, const I* words, const int8_t* a, I factor) {
    constexpr int kPair = kMaxU * 127 * 2;
    static_assert(kPair <= 32767);
    constexpr int kFit = 32767 / kPair;
    constexpr int kGroup = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    I sum = start;
    for (int w = 0; w < N; w += kGroup) {
      I group = _mm256_maddubs_epi16(words[w], broadcast4(a + 4 * w));
      for (int g = 1; g < kGroup && w + g < N; ++g) {
        group = _mm256_add_epi16(group,
                                 _mm256_maddubs_epi16(words[w + g], broadcast4(a + 4 * (w + g))));
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(group, factor));
    }
    return sum;
  }
  [[gnu::always_inline]] static I prepare_s8(I word) { return word; }
  template <int N>
  [[gnu::always_inline]] static I dot_s8(const I* words, const int8_t* a, int32_t) {
    const I ones = _mm256_set1_epi16(1);
    I sum = _mm256_setzero_si256();
    for (int w = 0; w < N; ++w) {
      const I pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(words[w]),
                                           _mm256_sign_epi8(broadcast4(a + 4 * w), words[w]));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }
  struct Scales {
    I first, second;  // each scale twice in its lane
    I offsets;        // kOffset times both, one in each half of a lane
  };
  template <int kOffset>
  [[gnu::always_inline]] static Scales scales(I pair) {
    constexpr int kShift = kOffset == 0 ? 0 : std::countr_zero(static_cast<unsigned>(kOffset));
    const I low_half = _mm256_setr_epi64x(0x0504050401000100, 0x0d0c0d0c09080908,
                                          0x0504050401000100, 0x0d0c0d0c09080908);
    const I high_half = _mm256_setr_epi64x(0x0706070603020302, 0x0f0e0f0e0b0a0b0a,
                                           0x0706070603020302, 0x0f0e0f0e0b0a0b0a);
    return {_mm256_shuffle_epi8(pair, low_half), _mm256_shuffle_epi8(pair, high_half),
            _mm256_slli_epi16(pair, kShift)};
  }
  template <int kMaxU, int kOffset>
  [[gnu::always_inline]] static F dot_scaled(const I* words, const ActBlock& a, const Scales& s) {
    I sum = _mm256_setzero_si256();
    if constexpr (kOffset != 0) sum = _mm256_madd_epi16(s.offsets, broadcast_pair(a));
    sum = dot_times<kMaxU, 4>(sum, words, a.q, s.first);
    return to_f32(dot_times<kMaxU, 4>(sum, words + 4, a.q + 16, s.second));
  }
  [[gnu::always_inline]] static F dot_mins(I mins, const ActBlock& a) {
    return to_f32(_mm256_madd_epi16(mins, broadcast_pair(a)));
  }
  [[gnu::always_inline]] static I broadcast_pair(const ActBlock& a) {
    int32_t word;
    std::memcpy(&word, a.minus_pair, 4);
    return _mm256_set1_epi32(word);
  }
  [[gnu::always_inline]] static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The multiply-add chains in avx2, in an object that alone has the flags of that instruction set.
#include <immintrin.h>

#include "measure/flop_chain.hpp"

namespace fathom::measure {
namespace {

struct Simd {
  using Vector = __m256;
  static constexpr int kFloats = 8;
  static Vector fill(float value) { return _mm256_set1_ps(value); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static float first(Vector v) { return _mm256_cvtss_f32(v); }
};

}  // namespace

constinit const FlopChainTable kFlopChainAvx2 = flop_chain_table<Simd>("avx2");

}  // namespace fathom::measure

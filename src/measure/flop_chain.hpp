// SPDX-License-Identifier: Apache-2.0
// The inner loop of the compute peak: independent chains of vectors of f32, a multiply-add each in
// every pass, so that the units and not the latency decide. One instantiation per instruction set,
// each in its own object.
#pragma once

#include <cstdint>

namespace fathom::measure {

inline constexpr int kFlopChains = 12;  // two units times a latency of five, and some

// Something of the chains after n passes.
using FlopChain = float (*)(int64_t n);

struct FlopChainTable {
  const char* isa;
  int floats;  // of a vector: a pass does 2 * kFlopChains * floats operations
  FlopChain run;
};
extern const FlopChainTable kFlopChainScalar;
extern const FlopChainTable kFlopChainAvx2;
extern const FlopChainTable kFlopChainAvx512;

// Simd: Vector, kFloats, fill(float), multiply_add(a, b, c) = a * b + c, first(v).
template <class Simd>
float flop_chain(int64_t n) {
  typename Simd::Vector chain[kFlopChains];
  for (int c = 0; c < kFlopChains; ++c) chain[c] = Simd::fill(static_cast<float>(c + 1));
  const auto factor = Simd::fill(0.999F), addend = Simd::fill(0.001F);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kFlopChains; ++c) {
      chain[c] = Simd::multiply_add(chain[c], factor, addend);
    }
  }
  float sum = 0;
  for (int c = 0; c < kFlopChains; ++c) sum += Simd::first(chain[c]);
  return sum;
}

template <class Simd>
constexpr FlopChainTable flop_chain_table(const char* isa) {
  return {isa, Simd::kFloats, flop_chain<Simd>};
}

}  // namespace fathom::measure

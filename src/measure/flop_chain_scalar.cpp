// SPDX-License-Identifier: Apache-2.0
// The multiply-add chains one number at a time.
#include "measure/flop_chain.hpp"

namespace fathom::measure {
namespace {

struct Simd {
  using Vector = float;
  static constexpr int kFloats = 1;
  static Vector fill(float value) { return value; }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
  static float first(Vector v) { return v; }
};

}  // namespace

constinit const FlopChainTable kFlopChainScalar = flop_chain_table<Simd>("scalar");

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Products of tensor cores: fragments to matrices, and back.
#include "emulator/fragments.hpp"

#include <vector>

#include "tensor/half.hpp"

namespace fathom::emulator {
namespace {

// a b of a 16 x K and a K x 8 matrix of elements of kBits bits, which element(bits, is_a) turns
// into numbers. A register holds 32 / kBits elements that follow each other in k, a lane the
// registers of rows g, g + 8 in the first half of k, then in the second.
template <class T, int kBits, int kDepth, class Element>
void multiply(const Lanes<Operands, Sums<T>>& lanes, const Element& element) {
  constexpr int kPerRegister = 32 / kBits, kHalf = 4 * kPerRegister;
  constexpr uint32_t kMask = static_cast<uint32_t>((uint64_t{1} << kBits) - 1);
  const auto bits = [&](uint32_t word, int k) { return word >> k % kPerRegister * kBits & kMask; };
  T a[16][kDepth], b[kDepth][8];
  for (int k = 0; k < kDepth; ++k) {
    const int lane = k % kHalf / kPerRegister, half = k / kHalf;
    for (int row = 0; row < 16; ++row) {
      a[row][k] = element(bits(lanes.in[row % 8 * 4 + lane]->a[row / 8 + 2 * half], k), true);
    }
    for (int col = 0; col < 8; ++col) {
      b[k][col] = element(bits(lanes.in[col * 4 + lane]->b[half], k), false);
    }
  }
  for (int row = 0; row < 16; ++row) {
    T sums[8] = {};
    for (int k = 0; k < kDepth; ++k) {
      for (int col = 0; col < 8; ++col) sums[col] += a[row][k] * b[k][col];
    }
    for (int col = 0; col < 8; ++col) {
      lanes.out[row % 8 * 4 + col / 2]->of[row / 8 * 2 + col % 2] = sums[col];
    }
  }
}

int signed_byte(uint32_t bits) { return static_cast<int8_t>(bits); }

// All values of a 16-bit float format.
std::vector<float> values_of(float (*convert)(uint16_t)) {
  std::vector<float> out(1 << 16);
  for (size_t i = 0; i < out.size(); ++i) out[i] = convert(static_cast<uint16_t>(i));
  return out;
}
void multiply_halves(const Lanes<Operands, Sums<double>>& lanes, const float* values) {
  multiply<double, 16, 16>(lanes, [&](uint32_t bits, bool) { return double{values[bits]}; });
}

}  // namespace

void multiply_u8_s8(const Lanes<Operands, Sums<int>>& lanes) {
  multiply<int, 8, 32>(lanes, [](uint32_t bits, bool is_a) {
    return is_a ? static_cast<int>(bits) : signed_byte(bits);
  });
}
void multiply_s8(const Lanes<Operands, Sums<int>>& lanes) {
  multiply<int, 8, 32>(lanes, [](uint32_t bits, bool) { return signed_byte(bits); });
}
void multiply_s8_k16(const Lanes<Operands, Sums<int>>& lanes) {
  multiply<int, 8, 16>(lanes, [](uint32_t bits, bool) { return signed_byte(bits); });
}
void multiply_f16(const Lanes<Operands, Sums<double>>& lanes) {
  static const std::vector<float> values = values_of([](uint16_t x) { return f16_to_f32(x); });
  multiply_halves(lanes, values.data());
}
void multiply_bf16(const Lanes<Operands, Sums<double>>& lanes) {
  static const std::vector<float> values = values_of([](uint16_t x) { return bf16_to_f32(x); });
  multiply_halves(lanes, values.data());
}

}  // namespace fathom::emulator

// SPDX-License-Identifier: Apache-2.0
// One value of a block in the layout of a GGUF file (docs/quant_formats.md), for kernels that look
// single values up: the embedding table. In quantised formats a value is
//   w = scale * code + add
// with both roundings, which is the order of operations of dequant_ref.cpp. The header only takes
// the block apart; the two operations are the caller's, who forbids their fusion on the device.
// Nothing here needs CUDA: the test compiles it for the host and compares every bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/half.hpp"
#include "tensor/hd.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {

struct BlockF32 {
  uint32_t bits;
};
struct BlockF16 {
  uint16_t bits;
};
struct BlockBF16 {
  uint16_t bits;
};

FATHOM_HD inline float float_value(const BlockF32& b) { return __builtin_bit_cast(float, b.bits); }
FATHOM_HD inline float float_value(const BlockF16& b) { return f16_to_f32(b.bits); }
FATHOM_HD inline float float_value(const BlockBF16& b) { return bf16_to_f32(b.bits); }

struct QuantValue {
  float scale, code, add;
};
inline constexpr float kNoAdd = -0.0f;  // x + -0 is x, zeros of both signs included

// Values of a block; 1 for the float types.
template <class Block>
inline constexpr int kBlockElems = 32;
template <>
inline constexpr int kBlockElems<BlockF32> = 1;
template <>
inline constexpr int kBlockElems<BlockF16> = 1;
template <>
inline constexpr int kBlockElems<BlockBF16> = 1;
template <>
inline constexpr int kBlockElems<BlockQ2_K> = 256;
template <>
inline constexpr int kBlockElems<BlockQ3_K> = 256;
template <>
inline constexpr int kBlockElems<BlockQ4_K> = 256;
template <>
inline constexpr int kBlockElems<BlockQ5_K> = 256;
template <>
inline constexpr int kBlockElems<BlockQ6_K> = 256;
template <>
inline constexpr int kBlockElems<BlockIQ4_XS> = 256;

// Nibble of value i of 32: bytes hold values 0-15 low and 16-31 high.
FATHOM_HD constexpr int halves_nibble(const uint8_t* qs, int i) {
  return (qs[i % 16] >> (i / 16 * 4)) & 15;
}
// Bit i of the 32 fifth bits of a Q5_0 or Q5_1 block, as bit 4 of the code.
FATHOM_HD constexpr int fifth_bit(const uint8_t* qh, int i) {
  return ((qh[i / 8] >> i % 8) & 1) << 4;
}

FATHOM_HD inline QuantValue quant_value(const BlockQ4_0& b, int i) {
  return {f16_to_f32(b.d), static_cast<float>(halves_nibble(b.qs, i) - 8), kNoAdd};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ4_1& b, int i) {
  return {f16_to_f32(b.d), static_cast<float>(halves_nibble(b.qs, i)), f16_to_f32(b.m)};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ5_0& b, int i) {
  const int code = halves_nibble(b.qs, i) | fifth_bit(b.qh, i);
  return {f16_to_f32(b.d), static_cast<float>(code - 16), kNoAdd};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ5_1& b, int i) {
  const int code = halves_nibble(b.qs, i) | fifth_bit(b.qh, i);
  return {f16_to_f32(b.d), static_cast<float>(code), f16_to_f32(b.m)};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ8_0& b, int i) {
  return {f16_to_f32(b.d), static_cast<float>(b.qs[i]), kNoAdd};
}

// Byte and shift of the two bits of value i of 256 (Q2_K, Q3_K): groups of 16 values.
FATHOM_HD constexpr int two_bit_byte(int i) { return i / 128 * 32 + i % 32; }
FATHOM_HD constexpr int two_bit_shift(int i) { return i / 32 % 4 * 2; }

FATHOM_HD inline QuantValue quant_value(const BlockQ2_K& b, int i) {
  const int scale_min = b.scales[i / 16];
  return {f16_to_f32(b.d) * static_cast<float>(scale_min & 15),
          static_cast<float>((b.qs[two_bit_byte(i)] >> two_bit_shift(i)) & 3),
          -(f16_to_f32(b.dmin) * static_cast<float>(scale_min >> 4))};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ3_K& b, int i) {
  const int minus = (b.hmask[i % 32] >> (i / 32)) & 1 ? 0 : 4;  // a clear bit means "minus 4"
  const int low = (b.qs[two_bit_byte(i)] >> two_bit_shift(i)) & 3;
  return {f16_to_f32(b.d) * static_cast<float>(q3_k_scale(i / 16, b.scales)),
          static_cast<float>(low - minus), kNoAdd};
}

// Nibble of value i of 256 (Q4_K, Q5_K): 32 bytes hold two runs of 32 values.
FATHOM_HD constexpr int runs_nibble(const uint8_t* qs, int i) {
  return (qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
}
FATHOM_HD inline QuantValue quant_value(const BlockQ4_K& b, int i) {
  uint8_t scale = 0, min = 0;
  unpack_scale_min_k4(i / 32, b.scales, scale, min);
  return {f16_to_f32(b.d) * static_cast<float>(scale), static_cast<float>(runs_nibble(b.qs, i)),
          -(f16_to_f32(b.dmin) * static_cast<float>(min))};
}
FATHOM_HD inline QuantValue quant_value(const BlockQ5_K& b, int i) {
  uint8_t scale = 0, min = 0;
  unpack_scale_min_k4(i / 32, b.scales, scale, min);
  const int code = runs_nibble(b.qs, i) | ((b.qh[i % 32] >> (i / 32)) & 1) << 4;
  return {f16_to_f32(b.d) * static_cast<float>(scale), static_cast<float>(code),
          -(f16_to_f32(b.dmin) * static_cast<float>(min))};
}
// Runs of 32 values; runs 0-3 and 4-7 are the two halves of the block.
FATHOM_HD inline QuantValue quant_value(const BlockQ6_K& b, int i) {
  const int half = i / 128, run = i / 32 % 4, lane = i % 32;
  const int low = (b.ql[64 * half + 32 * (run % 2) + lane] >> (run / 2 * 4)) & 15;
  const int high = (b.qh[32 * half + lane] >> (2 * run)) & 3;
  return {f16_to_f32(b.d) * static_cast<float>(b.scales[i / 16]),
          static_cast<float>((low | high << 4) - 32), kNoAdd};
}

// Eight of the 16 values of a code book in one word, so that a look-up needs no memory.
constexpr uint64_t packed_codes(const int8_t* values) {
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= uint64_t{static_cast<uint8_t>(values[i])} << (8 * i);
  return out;
}
struct CodeBook {
  uint64_t low, high;
};
inline constexpr CodeBook kIq4Book{packed_codes(kIq4Values), packed_codes(kIq4Values + 8)};
inline constexpr CodeBook kMxfp4Book{packed_codes(kMxfp4Values), packed_codes(kMxfp4Values + 8)};

FATHOM_HD inline float book_value(uint64_t low, uint64_t high, int code) {
  return static_cast<float>(static_cast<int8_t>((code < 8 ? low : high) >> (code % 8 * 8)));
}
FATHOM_HD inline QuantValue quant_value(const BlockIQ4_NL& b, int i) {
  return {f16_to_f32(b.d), book_value(kIq4Book.low, kIq4Book.high, halves_nibble(b.qs, i)), kNoAdd};
}
FATHOM_HD inline QuantValue quant_value(const BlockIQ4_XS& b, int i) {
  const int sub = i / 32;
  const int scale = iq4_xs_scale(sub, b.scales_l, b.scales_h);
  const int code = halves_nibble(b.qs + 16 * sub, i % 32);
  return {f16_to_f32(b.d) * static_cast<float>(scale),
          book_value(kIq4Book.low, kIq4Book.high, code), kNoAdd};
}
FATHOM_HD inline QuantValue quant_value(const BlockMXFP4& b, int i) {
  return {e8m0_to_f32_half(b.e),
          book_value(kMxfp4Book.low, kMxfp4Book.high, halves_nibble(b.qs, i)), kNoAdd};
}

}  // namespace fathom::quant

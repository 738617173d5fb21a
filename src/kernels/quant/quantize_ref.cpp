// SPDX-License-Identifier: Apache-2.0
// One function per block format and the table of them. The scale is rounded to f16 for the file,
// but the codes are chosen with the unrounded one, as everyone's files are.
#include "kernels/quant/quantize_ref.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "tensor/half.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {
namespace {

float reciprocal_or_zero(float d) { return d == 0 ? 0.0f : 1.0f / d; }

// The value of largest magnitude, with its sign; the first of equals.
float signed_peak(const float* x) {
  float peak = x[0];
  for (int i = 1; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
  }
  return peak;
}

// Codes 0..2^bits-1 of 32 values around a middle code of half the range.
template <int Bits>
uint16_t symmetric_codes(const float* x, uint8_t* codes) {
  constexpr int kHalf = 1 << (Bits - 1);
  const float d = signed_peak(x) / -static_cast<float>(kHalf);
  const float inverse = reciprocal_or_zero(d);
  for (int i = 0; i < 32; ++i) {
    const int code = static_cast<int>(x[i] * inverse + (static_cast<float>(kHalf) + 0.5f));
    codes[i] = static_cast<uint8_t>(std::min(code, 2 * kHalf - 1));
  }
  return f32_to_f16(d);
}

// Codes 0..2^bits-1 of 32 values from their minimum up.
template <int Bits>
void affine_codes(const float* x, uint8_t* codes, uint16_t& d_bits, uint16_t& m_bits) {
  constexpr int kMax = (1 << Bits) - 1;
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float min = *low;
  const float d = (*high - min) / static_cast<float>(kMax);
  const float inverse = reciprocal_or_zero(d);
  for (int i = 0; i < 32; ++i) {
    const int code = static_cast<int>((x[i] - min) * inverse + 0.5f);
    codes[i] = static_cast<uint8_t>(std::min(code, kMax));
  }
  d_bits = f32_to_f16(d);
  m_bits = f32_to_f16(min);
}

void pack_nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int i = 0; i < 16; ++i) {
    qs[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
}

void pack_fifth_bits(const uint8_t* codes, uint8_t* qh) {
  std::fill_n(qh, 4, uint8_t{0});
  for (int i = 0; i < 32; ++i) qh[i / 8] |= static_cast<uint8_t>((codes[i] >> 4) << (i % 8));
}

struct F32 {
  float value;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

void compress(const float* x, F32& b) { b.value = x[0]; }
void compress(const float* x, F16& b) { b.bits = f32_to_f16(x[0]); }
void compress(const float* x, BF16& b) { b.bits = f32_to_bf16(x[0]); }

void compress(const float* x, BlockQ4_0& b) {
  uint8_t codes[32];
  b.d = symmetric_codes<4>(x, codes);
  pack_nibbles(codes, b.qs);
}

void compress(const float* x, BlockQ4_1& b) {
  uint8_t codes[32];
  affine_codes<4>(x, codes, b.d, b.m);
  pack_nibbles(codes, b.qs);
}

void compress(const float* x, BlockQ5_0& b) {
  uint8_t codes[32];
  b.d = symmetric_codes<5>(x, codes);
  pack_nibbles(codes, b.qs);
  pack_fifth_bits(codes, b.qh);
}

void compress(const float* x, BlockQ5_1& b) {
  uint8_t codes[32];
  affine_codes<5>(x, codes, b.d, b.m);
  pack_nibbles(codes, b.qs);
  pack_fifth_bits(codes, b.qh);
}

void compress(const float* x, BlockQ8_0& b) {
  const float d = std::fabs(signed_peak(x)) / 127.0f;
  const float inverse = reciprocal_or_zero(d);
  for (int i = 0; i < 32; ++i) b.qs[i] = static_cast<int8_t>(std::round(x[i] * inverse));
  b.d = f32_to_f16(d);
}

template <class Block, int BlockElems>
void quantize(const float* values, std::byte* blocks, int64_t n_elems) {
  for (int64_t i = 0; i < n_elems / BlockElems; ++i) {
    Block block;
    compress(values + i * BlockElems, block);
    std::memcpy(blocks + i * static_cast<int64_t>(sizeof block), &block, sizeof block);
  }
}

struct Row {
  DType type;
  QuantFn fn;
};
constexpr std::array kTable = {
    Row{DType::f32, quantize<F32, 1>},         Row{DType::f16, quantize<F16, 1>},
    Row{DType::bf16, quantize<BF16, 1>},       Row{DType::q4_0, quantize<BlockQ4_0, 32>},
    Row{DType::q4_1, quantize<BlockQ4_1, 32>}, Row{DType::q5_0, quantize<BlockQ5_0, 32>},
    Row{DType::q5_1, quantize<BlockQ5_1, 32>}, Row{DType::q8_0, quantize<BlockQ8_0, 32>},
};

}  // namespace

QuantFn quant_fn(DType type) {
  for (const Row& row : kTable) {
    if (row.type == type) return row.fn;
  }
  return nullptr;
}

void quantize_row(DType type, const float* values, std::byte* blocks, int64_t n_elems) {
  const QuantFn fn = quant_fn(type);
  if (!fn) {
    std::string known;
    for (const Row& row : kTable) known += std::string(" ") + dtype_info(row.type).name;
    fail(ErrorCode::unsupported, "cannot quantise to {}; choose one of:{}", dtype_info(type).name,
         known);
  }
  FATHOM_CHECK(n_elems % dtype_info(type).block_elems == 0, "a row holds whole blocks");
  fn(values, blocks, n_elems);
}

}  // namespace fathom::quant

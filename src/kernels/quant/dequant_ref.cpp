// SPDX-License-Identifier: Apache-2.0
// One function per block format and the table of them. Layouts: docs/quant_formats.md. A 32-value
// block keeps values 0-15 in the low nibbles and 16-31 in the high nibbles of its 16 bytes.
#include "kernels/quant/dequant_ref.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "tensor/half.hpp"
#include "tensor/quant_blocks.hpp"

namespace fathom::quant {
namespace {

struct F32 {
  uint32_t bits;
};
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

void expand(const F32& b, float* out) { out[0] = std::bit_cast<float>(b.bits); }
void expand(const F16& b, float* out) { out[0] = f16_to_f32(b.bits); }
void expand(const BF16& b, float* out) { out[0] = bf16_to_f32(b.bits); }

// Bit `i` of the 32 fifth bits of a Q5_0 or Q5_1 block, as bit 4 of the code.
int fifth_bit(const uint8_t* qh, int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

void expand(const BlockQ4_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b.qs[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b.qs[i] >> 4) - 8);
  }
}

void expand(const BlockQ4_1& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b.qs[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b.qs[i] >> 4) + m;
  }
}

void expand(const BlockQ5_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((b.qs[i] & 15) | fifth_bit(b.qh, i)) - 16);
    out[i + 16] = d * static_cast<float>(((b.qs[i] >> 4) | fifth_bit(b.qh, i + 16)) - 16);
  }
}

void expand(const BlockQ5_1& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float m = f16_to_f32(b.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b.qs[i] & 15) | fifth_bit(b.qh, i)) + m;
    out[i + 16] = d * static_cast<float>((b.qs[i] >> 4) | fifth_bit(b.qh, i + 16)) + m;
  }
}

void expand(const BlockQ8_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.qs[i]);
}

// 256 values as 16 groups of 16: group g has bits 2*(g/2 % 4) of bytes 32*(g/8) + 16*(g%2) ...
const uint8_t* two_bit_bytes(const uint8_t* qs, int group) {
  return qs + 32 * (group / 8) + 16 * (group % 2);
}
int two_bit_shift(int group) { return 2 * (group / 2 % 4); }

void expand(const BlockQ2_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(b.scales[group] & 15);
    const float min = dmin * static_cast<float>(b.scales[group] >> 4);
    const uint8_t* bytes = two_bit_bytes(b.qs, group);
    for (int i = 0; i < 16; ++i) {
      *out++ = scale * static_cast<float>((bytes[i] >> two_bit_shift(group)) & 3) - min;
    }
  }
}

void expand(const BlockQ3_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(q3_k_scale(group, b.scales));
    const uint8_t* low = two_bit_bytes(b.qs, group);
    const uint8_t* high = b.hmask + 16 * (group % 2);
    for (int i = 0; i < 16; ++i) {
      const int minus = (high[i] >> (group / 2)) & 1 ? 0 : 4;  // a clear bit means "minus 4"
      *out++ = scale * static_cast<float>(((low[i] >> two_bit_shift(group)) & 3) - minus);
    }
  }
}

void expand(const BlockQ4_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int sub = 0; sub < 8; ++sub) {
    uint8_t sc, m;
    unpack_scale_min_k4(sub, b.scales, sc, m);
    const float scale = d * static_cast<float>(sc);
    const float min = dmin * static_cast<float>(m);
    const uint8_t* bytes = b.qs + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      *out++ = scale * static_cast<float>((bytes[i] >> shift) & 15) - min;
    }
  }
}

void expand(const BlockQ5_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  const float dmin = f16_to_f32(b.dmin);
  for (int sub = 0; sub < 8; ++sub) {
    uint8_t sc, m;
    unpack_scale_min_k4(sub, b.scales, sc, m);
    const float scale = d * static_cast<float>(sc);
    const float min = dmin * static_cast<float>(m);
    const uint8_t* bytes = b.qs + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      const int code = ((bytes[i] >> shift) & 15) | (((b.qh[i] >> sub) & 1) << 4);
      *out++ = scale * static_cast<float>(code) - min;
    }
  }
}

void expand(const BlockQ6_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int run = 0; run < 8; ++run) {  // 32 values; runs 0-3 and 4-7 are the two halves
    const uint8_t* low = b.ql + 64 * (run / 4) + 32 * (run % 2);
    const int low_shift = run % 4 < 2 ? 0 : 4;
    const uint8_t* high = b.qh + 32 * (run / 4);
    const int high_shift = 2 * (run % 4);
    for (int i = 0; i < 32; ++i) {
      const float scale = d * static_cast<float>(b.scales[2 * run + i / 16]);
      const int code = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      *out++ = scale * static_cast<float>(code - 32);
    }
  }
}

void expand_nibbles(float scale, const int8_t* values, const uint8_t* qs, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(values[qs[i] & 15]);
    out[i + 16] = scale * static_cast<float>(values[qs[i] >> 4]);
  }
}

void expand(const BlockIQ4_NL& b, float* out) {
  expand_nibbles(f16_to_f32(b.d), kIq4Values, b.qs, out);
}

void expand(const BlockIQ4_XS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int sub = 0; sub < 8; ++sub) {
    const float scale = d * static_cast<float>(iq4_xs_scale(sub, b.scales_l, b.scales_h));
    expand_nibbles(scale, kIq4Values, b.qs + 16 * sub, out + 32 * sub);
  }
}

void expand(const BlockMXFP4& b, float* out) {
  expand_nibbles(e8m0_to_f32_half(b.e), kMxfp4Values, b.qs, out);
}

template <class Block, int BlockElems>
void dequantize(const std::byte* blocks, float* out, int64_t n_elems) {
  for (int64_t i = 0; i < n_elems / BlockElems; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * static_cast<int64_t>(sizeof block), sizeof block);
    expand(block, out + i * BlockElems);
  }
}

struct Row {
  DType type;
  DequantFn fn;
};
constexpr std::array kTable = {
    Row{DType::f32, dequantize<F32, 1>},
    Row{DType::f16, dequantize<F16, 1>},
    Row{DType::bf16, dequantize<BF16, 1>},
    Row{DType::q4_0, dequantize<BlockQ4_0, 32>},
    Row{DType::q4_1, dequantize<BlockQ4_1, 32>},
    Row{DType::q5_0, dequantize<BlockQ5_0, 32>},
    Row{DType::q5_1, dequantize<BlockQ5_1, 32>},
    Row{DType::q8_0, dequantize<BlockQ8_0, 32>},
    Row{DType::q2_k, dequantize<BlockQ2_K, 256>},
    Row{DType::q3_k, dequantize<BlockQ3_K, 256>},
    Row{DType::q4_k, dequantize<BlockQ4_K, 256>},
    Row{DType::q5_k, dequantize<BlockQ5_K, 256>},
    Row{DType::q6_k, dequantize<BlockQ6_K, 256>},
    Row{DType::iq4_nl, dequantize<BlockIQ4_NL, 32>},
    Row{DType::iq4_xs, dequantize<BlockIQ4_XS, 256>},
    Row{DType::mxfp4, dequantize<BlockMXFP4, 32>},
};

}  // namespace

DequantFn dequant_fn(DType type) {
  for (const Row& row : kTable) {
    if (row.type == type) return row.fn;
  }
  fail(ErrorCode::internal, "no dequantiser for type {}", dtype_info(type).name);
}

void dequantize_row(DType type, const std::byte* blocks, float* out, int64_t n_elems) {
  FATHOM_CHECK(n_elems % dtype_info(type).block_elems == 0, "a row holds whole blocks");
  dequant_fn(type)(blocks, out, n_elems);
}

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// The quantised blocks as they lie in a GGUF file (docs/quant_formats.md). Little-endian; f16
// fields are raw bits. Source: ggml's block declarations; traps of K-quant scales are spelled out
// beside unpack_scale_min_k4.
#pragma once

#include <cstdint>

#include "tensor/hd.hpp"

namespace fathom {

struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};  // w = d * (q - 8)
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};  // w = d * q + m
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};  // w = d * (q - 16)
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};  // w = d * q + m
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};  // w = d * q
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};  // w = d * kIq4Values[q]
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};  // w = 2^(e-128) * kMxfp4Values[q]

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 &&
              sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84 &&
              sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 &&
              sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136 &&
              sizeof(BlockMXFP4) == 17);

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// Scale and min of sub-block j (0..7) of a Q4_K or Q5_K block out of its 12 bytes q: for j < 4 the
// low 6 bits of q[j] and q[j+4]; for j >= 4 a nibble of q[j+4] with the top 2 bits of q[j-4]
// (scale, low nibble) or q[j] (min, high nibble) above it.
FATHOM_HD constexpr void unpack_scale_min_k4(int j, const uint8_t* q, uint8_t& scale,
                                             uint8_t& min) {
  if (j < 4) {
    scale = q[j] & 63;
    min = q[j + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((q[j + 4] & 15) | ((q[j - 4] >> 6) << 4));
    min = static_cast<uint8_t>((q[j + 4] >> 4) | ((q[j] >> 6) << 4));
  }
}

// Scale of group g (0..15) of a Q3_K block out of its 12 bytes q: a nibble of q[g % 8] (low for
// g < 8) with bits 2*(g/4) and up of q[8 + g % 4] above it, less 32.
FATHOM_HD constexpr int q3_k_scale(int group, const uint8_t* q) {
  const int low = group < 8 ? q[group] & 15 : q[group - 8] >> 4;
  const int high = (q[8 + group % 4] >> (2 * (group / 4))) & 3;
  return (low | high << 4) - 32;
}

// Scale of sub-block j (0..7) of an IQ4_XS block: nibble j of scales_l with bits 2j and up of
// scales_h above it, less 32.
FATHOM_HD constexpr int iq4_xs_scale(int j, const uint8_t* scales_l, uint16_t scales_h) {
  const int low = (scales_l[j / 2] >> (4 * (j % 2))) & 15;
  const int high = (scales_h >> (2 * j)) & 3;
  return (low | high << 4) - 32;
}

}  // namespace fathom

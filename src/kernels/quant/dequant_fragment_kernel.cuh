// SPDX-License-Identifier: Apache-2.0
// 64 columns of a tile (mma_tile.hpp) as the registers of four products with f16 or bf16 inputs
// (mma.m16n8k16, wgmma with A in registers). Codes become f16 values, rounded once:
//   a byte under the exponent of 1024 is the f16 1024 + q; minus 1024 + offset, times the scale,
//   plus the offset of the block
// A lane has columns 4t .. 4t + 3 of each 16 at hand, a product's registers want 2t, 2t + 1, 8 + 2t
// and 9 + 2t: place k of 16 of the activations is column prefill_column(k), and no lane needs
// another's values. 16-bit floats are their own registers, in order.
#pragma once

#include <cuda_fp16.h>

#include "kernels/common/cxx20.cuh"
#include "tensor/mma_tile.hpp"

namespace fathom::quant {

// Places 2t, 2t + 1 are columns 4t, 4t + 2; places 8 + 2t, 9 + 2t are columns 4t + 1, 4t + 3.
FATHOM_HD constexpr int prefill_column(int place) { return 2 * (place % 8) + place / 8; }

inline constexpr int kFragmentCols = 64;

__device__ __forceinline__ uint32_t bits_of(__half2 h) { return *reinterpret_cast<uint32_t*>(&h); }
__device__ __forceinline__ __half2 halves_of(uint32_t bits) {
  return *reinterpret_cast<__half2*>(&bits);
}

// Bytes `kSelect` of a register, under the exponent of 1024.
template <int kSelect>
__device__ __forceinline__ __half2 above_1024(uint32_t bytes) {
  return halves_of(__byte_perm(bytes, 0x64646464u, kSelect));
}

// Scale and offset of the rows g and g + 8 in one block: a value is d * (q - offset) + m.
struct FragmentScales {
  __half2 d[2][2];  // [half of the block][row], twice
  __half2 m[2];     // [row], twice
};

// Values of rows g and g + 8, each twice.
__device__ __forceinline__ void twice(__half2 (&to)[2], __half2 rows) {
  to[0] = __low2half2(rows);
  to[1] = __high2half2(rows);
}

// Bytes of both rows, unsigned, as numbers.
template <int kSelect>
__device__ __forceinline__ __half2 row_numbers(uint32_t bytes) {
  return __hsub2(above_1024<kSelect>(bytes), halves_of(0x64006400u));
}

// Of both blocks of a pair.
template <class Format>
__device__ __forceinline__ void fragment_scales(FragmentScales (&out)[2], const std::byte* tile,
                                                int g, int pair) {
  const std::byte* at = tile + Format::kCodeBytes;
  if constexpr (Format::kKind == MmaKind::affine_k) {
    const MmaPairScales s = load_mma_pair_scales<Format>(tile, g, pair);
    const __half2 d = halves_of(s.d.x[0] | static_cast<uint32_t>(s.d.x[1]) << 16);
    const __half2 dmin =
        halves_of((s.d.x[2] | static_cast<uint32_t>(s.d.x[3]) << 16) ^ 0x80008000u);
    twice(out[0].d[0], __hmul2(d, row_numbers<0x4240>(s.scales)));
    twice(out[1].d[0], __hmul2(d, row_numbers<0x4341>(s.scales)));
    twice(out[0].m, __hmul2(dmin, row_numbers<0x4240>(s.mins)));
    twice(out[1].m, __hmul2(dmin, row_numbers<0x4341>(s.mins)));
  } else if constexpr (Format::kKind == MmaKind::two_scale) {
    const Words2 codes = load_as<Words2>(at + g * 32 + pair * 8);
    const __half2 d = halves_of(load_as<uint32_t>(at + 256 + g * 4));
    const __half2 bias = halves_of(0x64806480u);  // 1024 + 128
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t bytes = codes.x[odd] ^ 0x80808080u;
      twice(out[odd].d[0], __hmul2(d, __hsub2(above_1024<0x4140>(bytes), bias)));
      twice(out[odd].d[1], __hmul2(d, __hsub2(above_1024<0x4342>(bytes), bias)));
    }
  } else if constexpr (Format::kKind == MmaKind::affine) {
    const Words4 w = load_as<Words4>(at + (g * 8 + 2 * pair) * 8);
    for (int odd = 0; odd < 2; ++odd) {
      twice(out[odd].d[0], halves_of(w.x[2 * odd]));
      twice(out[odd].m, halves_of(w.x[2 * odd + 1]));
    }
  } else {
    const Words2 w = load_as<Words2>(at + (g * 8 + 2 * pair) * 4);
    for (int odd = 0; odd < 2; ++odd) twice(out[odd].d[0], halves_of(w.x[odd]));
  }
  if constexpr (Format::kKind != MmaKind::two_scale) {
    for (FragmentScales& s : out) {
      for (int row = 0; row < 2; ++row) s.d[1][row] = s.d[0][row];
    }
  }
}

// Two codes of a register as values; kScale: how many times too large its codes are.
template <class Format, int kScale, int kSelect>
__device__ __forceinline__ uint32_t fragment_values(uint32_t bytes, __half2 d, __half2 m) {
  constexpr bool kSigned = Format::kBits == 8;
  constexpr int kOffset = Format::kOffset + (kSigned ? 128 : 0);
  const __half2 code = above_1024<kSelect>(kSigned ? bytes ^ 0x80808080u : bytes);
  __half2 q;
  if constexpr (kScale == 1) {
    q = __hsub2(code, __float2half2_rn(1024.0f + kOffset));
  } else {
    q = __hfma2(code, __float2half2_rn(1.0f / kScale),
                __float2half2_rn(-1024.0f / kScale - kOffset));
  }
  constexpr bool kAffine = Format::kKind == MmaKind::affine || Format::kKind == MmaKind::affine_k;
  return bits_of(kAffine ? __hfma2(q, d, m) : __hmul2(q, d));
}

template <class Format, int kScale>
__device__ __forceinline__ void fragment_block(uint32_t* out, const uint32_t (&codes)[4],
                                               const FragmentScales& s) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = r % 2, half = r / 2;
    out[4 * half + row] =
        fragment_values<Format, kScale, 0x4240>(codes[r], s.d[half][row], s.m[row]);
    out[4 * half + row + 2] =
        fragment_values<Format, kScale, 0x4341>(codes[r], s.d[half][row], s.m[row]);
  }
}

// Columns 64 * part .. of a tile: out[4 * step + register].
template <DType type>
__device__ __forceinline__ void load_fragments(uint32_t (&out)[16], const std::byte* tile, int part,
                                               int lane) {
  using Format = MmaFormat<type>;
  if constexpr (Format::kKind == MmaKind::real) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const Words4 w = load_as<Words4>(tile + ((4 * part + step) * 32 + lane) * 16);
#pragma unroll
      for (int r = 0; r < 4; ++r) out[4 * step + r] = w.x[r];
    }
  } else {
    using Codes = MmaCodes<Format::kBits>;
    uint32_t codes[2][4];
    Codes::load(tile, part, lane, codes);
    FragmentScales scales[2];
    fragment_scales<Format>(scales, tile, lane / 4, part);
    fragment_block<Format, 1>(out, codes[0], scales[0]);
    fragment_block<Format, Codes::kSecondScale>(out + 8, codes[1], scales[1]);
  }
}

}  // namespace fathom::quant

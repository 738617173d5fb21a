// SPDX-License-Identifier: Apache-2.0
// Formats whose decode product stays below 85 % of the read ceiling on an instruction set: not the
// memory alone bounds a step. Measured by bench/targets.py (format_decode_* in
// bench/results); tools/check_slow_formats.py holds this table to the committed figures.
#pragma once

#include <string_view>

#include "tensor/dtype.hpp"

namespace fathom::quant {

struct SlowFormat {
  std::string_view isa;
  DType type;
  int pct;  // of the read ceiling
};

inline constexpr SlowFormat kSlowFormats[] = {
    {"avx2", DType::f32, 79},    {"avx2", DType::f16, 73},      {"avx2", DType::bf16, 79},
    {"avx2", DType::q4_0, 79},   {"avx2", DType::q4_1, 82},     {"avx2", DType::q5_0, 77},
    {"avx2", DType::q5_1, 72},   {"avx2", DType::q8_0, 83},     {"avx2", DType::q2_k, 69},
    {"avx2", DType::q3_k, 84},   {"avx2", DType::q5_k, 79},     {"avx2", DType::q6_k, 67},
    {"avx2", DType::iq4_nl, 83}, {"avx2", DType::iq4_xs, 65},   {"avx2", DType::mxfp4, 73},
    {"avx512", DType::f16, 79},  {"avx512", DType::bf16, 76},   {"avx512", DType::q2_k, 77},
    {"avx512", DType::q3_k, 75}, {"avx512", DType::q4_k, 83},   {"avx512", DType::q5_k, 75},
    {"avx512", DType::q6_k, 82}, {"avx512", DType::iq4_xs, 83}, {"avx512", DType::mxfp4, 82},
};

// The row of a format, null where it is not slow.
constexpr const SlowFormat* find_slow_format(std::string_view isa, DType packed_type) {
  for (const SlowFormat& slow : kSlowFormats) {
    if (slow.isa == isa && slow.type == packed_type) return &slow;
  }
  return nullptr;
}

}  // namespace fathom::quant

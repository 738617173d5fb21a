// SPDX-License-Identifier: Apache-2.0
// Formats whose decode product stays below 85 % of the read ceiling on an instruction set: their
// arithmetic, not the memory, bounds a step. Measured by bench/targets.py (format_decode_* in
// bench/results); tools/check_slow_formats.py holds this table to the committed figures.
#pragma once

#include <string_view>

#include "tensor/dtype.hpp"

namespace fathom::quant {

struct SlowFormat {
  std::string_view isa;
  DType type;
};

inline constexpr SlowFormat kSlowFormats[] = {
    {"avx2", DType::q2_k},
};

constexpr bool is_slow_format(std::string_view isa, DType packed_type) {
  for (const SlowFormat& slow : kSlowFormats) {
    if (slow.isa == isa && slow.type == packed_type) return true;
  }
  return false;
}

}  // namespace fathom::quant

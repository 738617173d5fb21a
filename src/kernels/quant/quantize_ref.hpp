// SPDX-License-Identifier: Apache-2.0
// Reference quantisation of f32 to the plain formats, bit for bit as the Python package `gguf`
// does it: nearest code under the block's largest magnitude (Q4_0, Q5_0, Q8_0) or its range
// (Q4_1, Q5_1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace fathom::quant {

// REQUIRES: n_elems is a multiple of the type's block_elems; values are finite.
using QuantFn = void (*)(const float* values, std::byte* blocks, int64_t n_elems);

// Null for a type without a quantiser here; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 have one.
QuantFn quant_fn(DType type);

// Throws Error{unsupported} that lists the types that have a quantiser.
void quantize_row(DType type, const float* values, std::byte* blocks, int64_t n_elems);

}  // namespace fathom::quant

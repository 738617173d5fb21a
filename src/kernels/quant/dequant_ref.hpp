// SPDX-License-Identifier: Apache-2.0
// Reference dequantisation of the blocks of a GGUF file to f32, value by value in the order of
// float operations that the Python package `gguf` uses, so that results agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace fathom::quant {

// Blocks need no alignment. REQUIRES: n_elems is a multiple of the type's block_elems.
using DequantFn = void (*)(const std::byte* blocks, float* out, int64_t n_elems);

// Never null: every DType enumerator has a row in the table.
DequantFn dequant_fn(DType type);

void dequantize_row(DType type, const std::byte* blocks, float* out, int64_t n_elems);

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// A weight matrix in the layout of the backend that will multiply with it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace fathom {

// How a product treats its activations: quantised to int8 in blocks of 32, or kept in f32 with
// dequantised weights (exact, slow, for oracles).
enum class Activations { int8, f32 };

struct PackedMatrix {
  const std::byte* data = nullptr;
  DType file_type = DType::f32;    // of the GGUF tensor
  DType packed_type = DType::f32;  // the format the kernel reads; f32 in exact mode
  int64_t rows = 0;                // outputs
  int64_t cols = 0;                // inputs
  int64_t packed_bytes = 0;
  int64_t file_bytes = 0;  // what cost() counts

  explicit operator bool() const { return data != nullptr; }
};

}  // namespace fathom

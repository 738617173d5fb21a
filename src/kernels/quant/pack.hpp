// SPDX-License-Identifier: Apache-2.0
// From a GGUF tensor to packed tiles.
#pragma once

#include "base/thread_pool.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom::quant {

// Sizes of the packed form. In f32 mode every type becomes f32 tiles. REQUIRES: cols is a whole
// number of blocks of file_type; else throws Error{unsupported}.
PackedMatrix plan_matrix(DType file_type, int64_t rows, int64_t cols, Activations activations);

// Fills plan.packed_bytes at `packed` from the tensor's file bytes, on all threads of the pool.
void pack_matrix(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                 std::byte* packed);

}  // namespace fathom::quant

// SPDX-License-Identifier: Apache-2.0
// Weights on their way to the GPU: packed on the host in pieces, each copied to its place.
#pragma once

#include "base/thread_pool.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom::cuda {

// Backend::plan_matrix. Throws Error{unsupported} for f32 activations and for types without tiles.
PackedMatrix plan_matrix(DType file_type, int64_t rows, int64_t cols, Activations activations);
// Backend::pack_matrix; `packed` is device memory.
void pack_matrix(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                 std::byte* packed);

}  // namespace fathom::cuda

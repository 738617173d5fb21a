// SPDX-License-Identifier: Apache-2.0
// From GGUF tensors to the tiles of mma_tile.hpp, on the host.
#pragma once

#include "base/thread_pool.hpp"
#include "tensor/packed_matrix.hpp"

namespace fathom::quant {

// Tiles of a row group of `cols` columns.
int64_t mma_tiles_per_group(DType type, int64_t cols);
int64_t mma_tile_bytes(DType type);

// Sizes of the packed form. Throws Error{unsupported} that lists the types with tiles, and when
// cols is no whole number of blocks, or of 32.
PackedMatrix plan_mma_matrix(DType file_type, int64_t rows, int64_t cols);

// Packs row groups [group_begin, group_end) of the matrix to `packed`, the first group first.
void pack_mma_groups(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                     int64_t group_begin, int64_t group_end, std::byte* packed);

}  // namespace fathom::quant

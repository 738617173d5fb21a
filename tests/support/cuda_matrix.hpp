// SPDX-License-Identifier: Apache-2.0
// A random matrix for tests of products on a GPU: in file layout for the reference, in tiles for
// the device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/quant/mma_pack.hpp"
#include "tests/support/op_cases.hpp"

namespace fathom::test {

struct CudaMatrix {
  CudaMatrix(DType type, int64_t rows, int64_t cols, uint64_t seed)
      : file(quant::random_weights(type, rows, cols, seed)),
        tiles(quant::plan_mma_matrix(type, rows, cols)),
        packed(static_cast<size_t>(tiles.packed_bytes)) {
    quant::pack_mma_groups(op_pool(1), tiles, file.data(), 0, (rows + 15) / 16, packed.data());
    reference = tiles;
    reference.data = file.data();
  }
  std::vector<std::byte> file;
  PackedMatrix tiles, reference;
  std::vector<std::byte> packed;
};

// The formats that have tiles.
inline constexpr DType kCudaMatrixTypes[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                                             DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k,
                                             DType::f16,  DType::bf16};

}  // namespace fathom::test

// SPDX-License-Identifier: Apache-2.0
// Tests of products on a GPU, a case for each format of the weights.
#pragma once

#include <vector>

#include "tests/support/cuda_fixture.hpp"
#include "tests/support/cuda_matrix.hpp"

namespace fathom::test {

class CudaMatrixTest : public CudaTestWithParam<DType> {
 protected:
  // The matrix's tiles, there until the test ends.
  PackedMatrix on_device(const CudaMatrix& w) {
    memory_.push_back(upload(w.packed));
    PackedMatrix out = w.tiles;
    out.data = memory_.back().get();
    return out;
  }

 private:
  std::vector<DeviceArray<std::byte>> memory_;
};

}  // namespace fathom::test

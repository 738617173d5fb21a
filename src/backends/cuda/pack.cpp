// SPDX-License-Identifier: Apache-2.0
// Pieces of at most 32 MB, so that the host holds little beside the mapped file.
#include "backends/cuda/pack.hpp"

#include <algorithm>
#include <memory>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "kernels/common/cuda_check.cuh"
#include "kernels/quant/mma_pack.hpp"
#include "tensor/mma_tile.hpp"

namespace fathom::cuda {

PackedMatrix plan_matrix(DType file_type, int64_t rows, int64_t cols, Activations activations) {
  if (activations == Activations::f32) {
    fail(ErrorCode::unsupported,
         "the CUDA backend multiplies with int8 activations, or with 16-bit ones where the weights "
         "are 16-bit floats; use --backend cpu for f32");
  }
  return quant::plan_mma_matrix(file_type, rows, cols);
}

void pack_matrix(ThreadPool& pool, const PackedMatrix& plan, const std::byte* file,
                 std::byte* packed) {
  constexpr int64_t kPieceBytes = int64_t{32} << 20;
  const int64_t n_groups = ceil_div(plan.rows, quant::kMmaRows);
  const int64_t group_bytes = plan.packed_bytes / n_groups;
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / group_bytes, 1, n_groups);
  const std::unique_ptr<std::byte[]> host(new std::byte[piece * group_bytes]);
  for (int64_t begin = 0; begin < n_groups; begin += piece) {
    const int64_t end = std::min(begin + piece, n_groups);
    quant::pack_mma_groups(pool, plan, file, begin, end, host.get());
    check(cudaMemcpy(packed + begin * group_bytes, host.get(),
                     static_cast<size_t>((end - begin) * group_bytes), cudaMemcpyHostToDevice));
  }
  check(cudaStreamSynchronize(nullptr));  // the copy's last piece may still be on its way
}

}  // namespace fathom::cuda

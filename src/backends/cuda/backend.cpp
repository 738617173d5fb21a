// SPDX-License-Identifier: Apache-2.0
// The entry point of libfathom_cuda.so. Its device is complete, its op table is still empty: a
// model is refused when its first matrix is planned.
#include "device/backend.hpp"

#include "backends/cuda/device_api.hpp"
#include "base/build_info.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

PackedMatrix plan_matrix(DType file_type, int64_t, int64_t, Activations) {
  fail(ErrorCode::unsupported,
       "the CUDA backend of this version has no kernel for {} matrices; use --backend cpu",
       dtype_info(file_type).name);
}

void pack_matrix(ThreadPool&, const PackedMatrix& plan, const std::byte*, std::byte*) {
  plan_matrix(plan.file_type, plan.rows, plan.cols, Activations::int8);
}

}  // namespace
}  // namespace fathom::cuda

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  using namespace fathom;
  if (abi != kBackendAbi) return nullptr;
  static const Backend kBackend = {.abi = kBackendAbi,
                                   .name = "cuda",
                                   .build_id = build_info().commit,
                                   .ops = nullptr,
                                   .device = &cuda::device_api(),
                                   .plan_matrix = cuda::plan_matrix,
                                   .pack_matrix = cuda::pack_matrix,
                                   .keeps_file_layout = false};
  return &kBackend;
}

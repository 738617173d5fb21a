// SPDX-License-Identifier: Apache-2.0
// The throwing half of the checks: messages carry CUDA's name of the error and the call's place
// below src/.
#include <string_view>

#include "base/check.hpp"
#include "base/error.hpp"
#include "kernels/common/cuda_check.cuh"

namespace fathom::cuda {
namespace {

[[noreturn]] void fail_with(cudaError_t status, std::string_view what,
                            const std::source_location& where) {
  const bool out_of_memory = status == cudaErrorMemoryAllocation;
  fail(out_of_memory ? ErrorCode::out_of_memory : ErrorCode::device_fault, "{}: {} ({} at {}:{})",
       what, cudaGetErrorString(status), cudaGetErrorName(status), file_below_src(where),
       where.line());
}

}  // namespace

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the next call must not be blamed for this one
  fail_with(status, "the GPU reported an error", where);
}

void check_launch(const char* kernel, std::source_location where) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) fail_with(status, kernel, where);
}

}  // namespace fathom::cuda

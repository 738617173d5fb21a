// SPDX-License-Identifier: Apache-2.0
// CUDA status codes as exceptions that name the call's place. Destructors use `ignore`.
#pragma once

#include <cuda_runtime.h>

#include <source_location>

namespace fathom::cuda {

// Throws Error{device_fault} with CUDA's name and text of the error, and where the call stands.
void check(cudaError_t status, std::source_location where = std::source_location::current());

// The error state right after a launch: a wrong geometry shows here, under the kernel's own name.
void check_launch(const char* kernel, std::source_location where = std::source_location::current());

// For destructors: what cannot be given back any more is of no use to anybody.
inline void ignore(cudaError_t) noexcept {}

}  // namespace fathom::cuda

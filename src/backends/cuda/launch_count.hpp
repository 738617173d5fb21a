// SPDX-License-Identifier: Apache-2.0
// Counts the kernels that are launched one by one. The runtime's launch functions are wrapped when
// the library is linked (CMakeLists.txt), so that no launcher can be forgotten.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "device/device_api.hpp"

namespace fathom::cuda {

int64_t kernel_launches();        // of this process
void count_launches(bool count);  // of this thread: not while it captures
// Of this thread's capture, since count_launches(false).
int64_t captured_kernels();
// What this thread launches while fn runs.
std::vector<KernelLaunch> watch_launches(const std::function<void()>& fn);

// A launch as the runtime was asked for it, or as a graph keeps it.
struct SeenLaunch {
  const void* kernel;
  dim3 grid, block;
  size_t dynamic_bytes;
};
KernelLaunch describe_launch(const SeenLaunch& seen);

}  // namespace fathom::cuda

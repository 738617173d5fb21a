// SPDX-License-Identifier: Apache-2.0
// Counts the kernels that are launched one by one. The runtime's launch functions are wrapped when
// the library is linked (CMakeLists.txt), so that no launcher can be forgotten.
#pragma once

#include <cstdint>

namespace fathom::cuda {

int64_t kernel_launches();        // of this process
void count_launches(bool count);  // of this thread: not while it captures

}  // namespace fathom::cuda

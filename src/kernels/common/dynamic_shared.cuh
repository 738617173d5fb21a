// SPDX-License-Identifier: Apache-2.0
// The dynamic shared memory of a block, in a header of its own since there can be one declaration
// only, and since tests/emulator has another one.
#pragma once

#include <cstddef>

namespace fathom::cuda {

// Aligned to 128 bytes, as large as the launch says.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) std::byte fathom_dynamic_shared[];
  return reinterpret_cast<T*>(fathom_dynamic_shared);
}

}  // namespace fathom::cuda

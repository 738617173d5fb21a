// SPDX-License-Identifier: Apache-2.0
// Of the block that runs; poisoned before it, and of the size that the launch says.
#pragma once

#include "emulator/block.hpp"

namespace fathom::cuda {

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::dynamic_shared_memory());
}

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The CPU backend: packed weights, SIMD kernels of the instruction set chosen at run time.
#pragma once

#include "device/backend.hpp"

namespace fathom {

const Backend& cpu_backend();

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Does arithmetic in registers on every multiprocessor, as fast as its units finish it: the ceiling
// that the operations of kernels are set against.
#pragma once

#include <cstdint>

#include "device/device_api.hpp"

namespace fathom::cuda {

struct ArithmeticStreamArgs {
  Arithmetic kind;
  int64_t passes;   // 64 to 16384, so that every result is exact
  uint64_t* right;  // [1] on the device; grown by the number of threads whose results are right
};

// Submits it; `stream` is a cudaStream_t. REQUIRES: passes as above, checked.
ArithmeticWork arithmetic_stream(const ArithmeticStreamArgs& args, void* stream);

}  // namespace fathom::cuda

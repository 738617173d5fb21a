// SPDX-License-Identifier: Apache-2.0
// What stands in for the CUPTI files where CMake found no cupti.h.
#include "backends/cuda/watch.hpp"
#include "base/error.hpp"

namespace fathom::cuda {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::unavailable,
       "this backend was built without CUPTI, so nothing on the GPU can be watched: build it where "
       "cupti.h lies beside CUDA's headers");
}

}  // namespace

TraceSource& trace_source() { refuse(); }
CounterSource& counter_source() { refuse(); }
StallSource& stall_source() { refuse(); }

}  // namespace fathom::cuda

// SPDX-License-Identifier: Apache-2.0
// The three ways to watch the GPU, all by CUPTI. Without CUPTI's headers they say that the build
// had none.
#pragma once

#include "device/counters.hpp"
#include "device/stalls.hpp"
#include "device/trace.hpp"

namespace fathom::cuda {

// See Backend.
TraceSource& trace_source();
CounterSource& counter_source();
StallSource& stall_source();

}  // namespace fathom::cuda

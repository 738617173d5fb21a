// SPDX-License-Identifier: Apache-2.0
// The clock of the multiprocessors of the GPU that CUDA calls its first, as its driver says it now.
#pragma once

#include <cstdlib>
#include <optional>

#include "measure/gpu_idle.hpp"
#include "measure/nvml.hpp"

namespace fathom::cli {

class GpuClock {
 public:
  GpuClock()
      : gpu_(measure::first_visible_gpu(nvml_.read(), std::getenv("CUDA_VISIBLE_DEVICES"))) {}

  // A call of the driver's library. 0 = it does not say, or there is no such GPU.
  double mhz() const { return gpu_ ? nvml_.sm_clock_mhz(*gpu_).value_or(0) : 0; }

 private:
  measure::Nvml nvml_;
  std::optional<size_t> gpu_;
};

}  // namespace fathom::cli

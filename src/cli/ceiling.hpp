// SPDX-License-Identifier: Apache-2.0
// A rate beside a ceiling that `doctor` measured some other day, which no gate judges; the gates
// are in report/ceiling.hpp.
#pragma once

#include "report/ceiling.hpp"

namespace fathom::cli {

using report::ceiling_gate;
using report::kCacheMultiple;
using report::kCeilingRatio;
using report::least_ceiling_gate;
using report::least_ceiling_gbps;
using report::partly_cached;

// "38 % of the 26.9 GB/s measured here"; of a rate above it the reason instead of the share.
// `doctor` is the command that measures the peak.
inline std::string share_of_peak(double gbps, double peak_gbps, int64_t step_bytes,
                                 int64_t llc_bytes, std::string_view doctor = "fathom doctor") {
  if (gbps <= peak_gbps) {
    return fmt::format("{:.0f} % of the {:.1f} GB/s measured here", 100 * gbps / peak_gbps,
                       peak_gbps);
  }
  return fmt::format("above the {:.1f} GB/s measured here, {}", peak_gbps,
                     partly_cached(step_bytes, llc_bytes)
                         ? "as the processor's cache holds part of the model"
                         : fmt::format("which is too low (run `{}` again)", doctor));
}

}  // namespace fathom::cli

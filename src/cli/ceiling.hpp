// SPDX-License-Identifier: Apache-2.0
// Gate `ceiling`: nothing reads memory faster than our read stream did between the same rounds. A
// rate beyond it means that one of the two was measured wrongly, or that the bytes never came from
// memory. The same beside a ceiling that `doctor` measured some other day, which no gate judges.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "report/result.hpp"

namespace fathom::cli {

inline constexpr double kCeilingRatio = 1.03;
// Below so many last-level caches, a step's bytes partly stay in the cache between steps.
inline constexpr int64_t kCacheMultiple = 2;

inline bool partly_cached(int64_t step_bytes, int64_t llc_bytes) {
  return step_bytes < kCacheMultiple * llc_bytes;
}

inline report::Gate ceiling_gate(const std::string& what, int64_t step_bytes, double ratio,
                                 int64_t llc_bytes) {
  report::Gate gate{.id = "ceiling", .pass = true, .value = {}, .limit = kCeilingRatio, .why = ""};
  if (partly_cached(step_bytes, llc_bytes)) {
    gate.why =
        fmt::format("{}: not judged, the step's {:.1f} MB partly stay in the {:.1f} MB cache", what,
                    static_cast<double>(step_bytes) * 1e-6, static_cast<double>(llc_bytes) * 1e-6);
    return gate;
  }
  gate.value = ratio;
  gate.pass = ratio <= kCeilingRatio;
  gate.why = fmt::format("{}: the declared bytes come at {:.3f} of the read ceiling", what, ratio);
  return gate;
}

// "38 % of the 26.9 GB/s measured here"; of a rate above it the reason instead of the share.
inline std::string share_of_peak(double gbps, double peak_gbps, int64_t step_bytes,
                                 int64_t llc_bytes) {
  if (gbps <= peak_gbps) {
    return fmt::format("{:.0f} % of the {:.1f} GB/s measured here", 100 * gbps / peak_gbps,
                       peak_gbps);
  }
  return fmt::format("above the {:.1f} GB/s measured here, {}", peak_gbps,
                     partly_cached(step_bytes, llc_bytes)
                         ? "as the CPU's cache holds part of the model"
                         : "which is too low (run `fathom doctor` again)");
}

}  // namespace fathom::cli

// SPDX-License-Identifier: Apache-2.0
// Gate `ceiling`: nothing reads memory faster than our read stream did between the same rounds. A
// rate beyond it means that one of the two was measured wrongly, or that the bytes never came from
// memory. A ceiling far below what the device is known to give makes every share too good: the
// same gate, as of more arithmetic than a chip can do.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "report/result.hpp"

namespace fathom::report {

inline constexpr double kCeilingRatio = 1.03;
// Below so many last-level caches, a step's bytes partly stay in the cache between steps.
inline constexpr int64_t kCacheMultiple = 2;

inline bool partly_cached(int64_t step_bytes, int64_t llc_bytes) {
  return step_bytes < kCacheMultiple * llc_bytes;
}

inline Gate ceiling_gate(const std::string& what, int64_t step_bytes, double ratio,
                         int64_t llc_bytes) {
  Gate gate{.id = "ceiling", .pass = true, .value = {}, .limit = kCeilingRatio, .why = ""};
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

// The least that a read stream gives on a device at its usual clocks; 0 for devices not listed.
inline double least_ceiling_gbps(std::string_view device) {
  return device == "NVIDIA H200" ? 4500 : 0;
}

// REQUIRES: least_ceiling_gbps(device) > 0.
inline Gate least_ceiling_gate(std::string_view device, double ceiling_gbps) {
  const double least_gbps = least_ceiling_gbps(device);
  return {
      .id = "ceiling",
      .pass = ceiling_gbps >= least_gbps,
      .value = ceiling_gbps,
      .limit = least_gbps,
      .why = fmt::format("the read ceiling is {:.0f} GB/s, of an {} at least {:.0f} are expected",
                         ceiling_gbps, device, least_gbps)};
}

// Gate `ceiling` of arithmetic: no chip finishes more operations than its units can in a cycle.
inline Gate ops_gate(const std::string& what, double gops, double most_gops) {
  return {.id = "ceiling",
          .pass = gops <= most_gops,
          .value = gops / most_gops,
          .limit = 1,
          .why = fmt::format("{}: {:.0f} GFLOP/s, the units of this chip finish at most {:.0f}",
                             what, gops, most_gops)};
}

}  // namespace fathom::report

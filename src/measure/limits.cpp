// SPDX-License-Identifier: Apache-2.0
// The table of instruction sets.
#include "measure/limits.hpp"

namespace fathom::measure {

std::optional<double> most_ops_per_cycle(std::string_view isa) {
  static constexpr struct {
    std::string_view isa;
    double ops;
  } kTable[] = {
      {"scalar", 64},   // SSE2 at best: two ports, 16 products of int8 each
      {"avx2", 128},    // two ports, 32 products each
      {"avx512", 256},  // two ports, 64 products each (VNNI)
      {"sm_80", 4096},  // A100: 624 TOPS of 108 SMs at 1.41 GHz
      {"sm_86", 2048},   {"sm_89", 2048},
      {"sm_90", 8192},  // H100, H200: 1979 TOPS of 132 SMs at 1.83 GHz
      {"sm_100", 16384}, {"sm_103", 16384},
      {"sm_120", 2048},
  };
  for (const auto& row : kTable) {
    if (row.isa == isa) return row.ops;
  }
  return {};
}

std::optional<double> most_gops(std::string_view isa, int units, std::optional<double> clock_mhz) {
  const std::optional<double> ops = most_ops_per_cycle(isa);
  if (!ops || units <= 0 || !clock_mhz) return {};
  return *ops * units * *clock_mhz * 1e-3;
}

bool proven_cold(int64_t distinct_bytes, int64_t cache_bytes) {
  return cache_bytes > 0 && distinct_bytes / kColdMultiple >= cache_bytes;
}

}  // namespace fathom::measure

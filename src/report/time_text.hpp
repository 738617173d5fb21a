// SPDX-License-Identifier: Apache-2.0
// Durations for people: three or four significant digits and a unit.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace fathom::report {

// 950.0 -> "950 ns", 12'340 -> "12.3 µs", 9'876'000 -> "9.88 ms"
inline std::string time_text(double ns) {
  const double size = std::abs(ns);
  const double unit = size >= 999'500 ? 1e6 : size >= 999.5 ? 1e3 : 1;
  const char* name = unit == 1e6 ? "ms" : unit == 1e3 ? "µs" : "ns";
  const double value = ns / unit;
  const int digits = unit == 1 ? 0 : std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", std::abs(value) < 0.5 && unit == 1 ? 0.0 : value, digits, name);
}

// With its sign: "+12.3 µs", "−4.56 ms".
inline std::string signed_time_text(double ns) {
  return (ns < 0 ? "−" : "+") + time_text(std::abs(ns));
}

}  // namespace fathom::report

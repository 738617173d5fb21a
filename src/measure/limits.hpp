// SPDX-License-Identifier: Apache-2.0
// What no honest measurement can exceed: the operations that the units of a chip can finish in a
// cycle, and which bytes must have come from memory. A figure beyond its limit was measured
// wrongly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fathom::measure {

// Additions and multiplications of the narrowest type that Fathom computes with (int8, dense) in
// one cycle of one core or SM; nothing for an instruction set that is not listed. Sources: Intel
// and AMD optimisation manuals (two vector ports), NVIDIA's architecture white papers.
std::optional<double> most_ops_per_cycle(std::string_view isa);

// units x clock x the above, in 10^9 operations a second; nothing where one of them is unknown.
std::optional<double> most_gops(std::string_view isa, int units, std::optional<double> clock_mhz);

// A set of bytes that is walked through again and again comes from memory when it is at least three
// times the last-level cache: then whatever the cache kept is gone before its turn comes again.
inline constexpr int64_t kColdMultiple = 3;
bool proven_cold(int64_t distinct_bytes, int64_t cache_bytes);

}  // namespace fathom::measure

// SPDX-License-Identifier: Apache-2.0
// Launches that start before the one before them ends, as programmatic dependent launches do: what
// runs under another's time is in nobody's growth, and where more of it fits under a longer
// neighbour, the one shrinks as the other grows.
#pragma once

#include <string>
#include <vector>

#include "measure/observation.hpp"

namespace fathom::measure {

// Times are of a step, in nanoseconds.
struct Overlap {
  std::string op;
  std::string under;            // the op under whose time most of it runs
  double lo_ns = 0, hi_ns = 0;  // that the op's launches run before those end, at both anchors
  double growth_ns() const { return hi_ns - lo_ns; }
};

// Of the steps that were recorded last at both anchors, by op; most growth first.
std::vector<Overlap> overlaps_of(const TraceStep& lo, const TraceStep& hi);

}  // namespace fathom::measure

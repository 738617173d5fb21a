// SPDX-License-Identifier: Apache-2.0
// The drawings of an attribution: a waterfall that closes, time over depth, a roofline with both
// anchors, what the growth consists of, and growth by layer. Times in nanoseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/svg.hpp"

namespace fathom::report {

struct WaterfallStep {
  std::string name;
  double ns = 0;          // growth
  double lo = 0, hi = 0;  // its interval
};

struct Waterfall {
  std::string from, to;  // what the first and the last bar are
  double from_ns = 0, to_ns = 0;
  std::vector<WaterfallStep> steps;
  double residue_ns = 0;  // to - from - steps
  double limit_ns = 0;    // of the residue
  bool closes = false;
};
Svg draw_waterfall(const Waterfall& data);

struct DepthPoint {
  int64_t depth = 0;
  double ns = 0, lo = 0, hi = 0;  // of a token, and its interval
  bool anchor = false;
};
Svg draw_depths(const std::vector<DepthPoint>& points, double intercept_ns, double slope_ns);

struct RooflineOp {
  std::string name;
  double intensity[2] = {0, 0};  // operations per byte, at each anchor
  double gflops[2] = {0, 0};
  bool grows = false;
};
struct Roofline {
  std::vector<RooflineOp> ops;
  double memory_gbps = 0;
  std::optional<double> cache_gbps, gflops;
  std::string depths[2];
};
Svg draw_roofline(const Roofline& data);

// The time of an op at both anchors: at the peaks, and the rest.
struct PartsBar {
  std::string name;
  double bytes_ns = 0;    // at the peak bandwidth
  double compute_ns = 0;  // beyond the bytes' time
  double exposed_ns = 0;
};
Svg draw_parts(const std::vector<PartsBar>& bars);

struct LayerRow {
  std::string name;
  std::vector<double> ns;  // [layer] growth
};
Svg draw_layers(const std::vector<LayerRow>& rows);

}  // namespace fathom::report

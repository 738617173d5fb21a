// SPDX-License-Identifier: Apache-2.0
// Scales, bars and labels of the drawings.
#include "report/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/time_text.hpp"

namespace fathom::report {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 220;  // room for the names of ops

// Maps values to pixels.
struct Scale {
  double lo, hi, from, to;
  double operator()(double value) const { return from + (value - lo) / (hi - lo) * (to - from); }
};

const char* grow_css(double ns) { return ns >= 0 ? "grow" : "shrink"; }

struct TimeAxis {
  double unit_ns;
  const char* name;
  int digits;  // behind the point, for ticks `step_ns` apart
};

TimeAxis axis_of(double most_ns, double step_ns) {
  const bool milli = most_ns >= 1e6;
  const double unit = milli ? 1e6 : most_ns >= 1e3 ? 1e3 : 1;
  const char* name = milli ? "ms" : most_ns >= 1e3 ? "µs" : "ns";
  const double step = step_ns / unit;
  const int digits = step >= 1 ? 0 : std::min(6, static_cast<int>(std::ceil(-std::log10(step))));
  return {unit, name, digits};
}

double step_of(const std::vector<double>& at) { return at.size() > 1 ? at[1] - at[0] : at[0]; }

// Vertical lines with their values below.
void draw_time_axis(Svg& svg, const Scale& x, double top, double bottom, int n) {
  const std::vector<double> at = ticks(x.lo, x.hi, n);
  const TimeAxis axis = axis_of(std::max(std::abs(x.lo), std::abs(x.hi)), step_of(at));
  for (const double ns : at) {
    svg.line(x(ns), top, x(ns), bottom, "grid");
    svg.text(x(ns), bottom + 16, fmt::format("{:.{}f}", ns / axis.unit_ns, axis.digits),
             "soft small number", Anchor::middle);
  }
  svg.text(x.to, bottom + 32, axis.name, "soft small", Anchor::end);
}

// --- Waterfall

struct WaterfallFrame {
  Scale x;
  double row = 27, bar = 15, top = 14;
  double y(size_t i) const { return top + row * static_cast<double>(i); }
};

// From a little below the smallest to a little above the largest level; from 0 where that is near.
Scale waterfall_scale(const Waterfall& data) {
  double lo = std::min(data.from_ns, data.to_ns), hi = std::max(data.from_ns, data.to_ns);
  double level = data.from_ns;
  for (const WaterfallStep& step : data.steps) {
    level += step.ns;
    lo = std::min({lo, level, level - step.ns + step.lo});
    hi = std::max({hi, level, level - step.ns + step.hi});
  }
  lo = std::min(lo, data.to_ns - data.limit_ns);
  hi = std::max(hi, data.to_ns + data.limit_ns);
  const double span = std::max(hi - lo, 1.0);
  lo -= 0.35 * span;
  if (lo < 0.15 * hi) lo = 0;
  return {lo, hi + 0.04 * span, kLeft, kWidth - 120};
}

void draw_level(Svg& svg, const WaterfallFrame& frame, size_t i, const std::string& name,
                double ns) {
  const double y = frame.y(i), x0 = frame.x.from, x1 = frame.x(ns);
  svg.text(x0 - 10, y + frame.bar - 3, name, "strong", Anchor::end);
  svg.rect(x0, y, x1 - x0, frame.bar, "level", fmt::format("{}: {}", name, time_text(ns)));
  if (frame.x.lo > 0) {  // the bar does not start at 0
    svg.rect(x0 + 7, y - 2, 4, frame.bar + 4, "paper");
    svg.rect(x0 + 14, y - 2, 4, frame.bar + 4, "paper");
  }
  svg.text(kWidth - 8, y + frame.bar - 3, time_text(ns), "strong number", Anchor::end);
}

void draw_step(Svg& svg, const WaterfallFrame& frame, size_t i, const WaterfallStep& step,
               double level) {
  const double y = frame.y(i);
  const double x0 = frame.x(level), x1 = frame.x(level + step.ns);
  svg.text(frame.x.from - 10, y + frame.bar - 3, step.name, "", Anchor::end);
  svg.rect(std::min(x0, x1), y, std::max(1.5, std::abs(x1 - x0)), frame.bar, grow_css(step.ns),
           fmt::format("{}: {} ({} to {})", step.name, signed_time_text(step.ns),
                       signed_time_text(step.lo), signed_time_text(step.hi)));
  const double middle = y + frame.bar / 2;
  svg.line(frame.x(level + step.lo), middle, frame.x(level + step.hi), middle, "whisker");
  for (const double end : {step.lo, step.hi}) {
    svg.line(frame.x(level + end), middle - 3.5, frame.x(level + end), middle + 3.5, "whisker");
  }
  svg.text(kWidth - 8, y + frame.bar - 3, signed_time_text(step.ns), "number", Anchor::end);
}

}  // namespace

Svg draw_waterfall(const Waterfall& data) {
  WaterfallFrame frame{.x = waterfall_scale(data)};
  const size_t n_rows = data.steps.size() + 3;
  const double bottom = frame.y(n_rows);
  Svg svg("waterfall", kWidth, bottom + 44, "What a deeper step takes more time for",
          fmt::format("From {} ({}) over the growth of each op to {} ({}); {} are left over.",
                      data.from, time_text(data.from_ns), data.to, time_text(data.to_ns),
                      signed_time_text(data.residue_ns)));
  draw_time_axis(svg, frame.x, frame.top - 6, bottom, 7);
  const double band = frame.x(data.to_ns + data.limit_ns) - frame.x(data.to_ns - data.limit_ns);
  svg.rect(frame.x(data.to_ns - data.limit_ns), frame.top - 6, std::max(2.0, band),
           bottom - frame.top + 6, "band",
           fmt::format("the sum must end within {} of the last bar", time_text(data.limit_ns)));

  draw_level(svg, frame, 0, data.from, data.from_ns);
  double level = data.from_ns;
  for (size_t i = 0; i < data.steps.size(); ++i) {
    svg.line(frame.x(level), frame.y(i) + frame.bar, frame.x(level), frame.y(i + 1), "link");
    draw_step(svg, frame, i + 1, data.steps[i], level);
    level += data.steps[i].ns;
  }
  const size_t residue_row = data.steps.size() + 1;
  const double y = frame.y(residue_row);
  svg.line(frame.x(level), frame.y(residue_row - 1) + frame.bar, frame.x(level), y, "link");
  const double x0 = frame.x(level), x1 = frame.x(level + data.residue_ns);
  svg.text(frame.x.from - 10, y + frame.bar - 3, "left over", "soft", Anchor::end);
  svg.rect(std::min(x0, x1), y, std::max(1.5, std::abs(x1 - x0)), frame.bar, "residue",
           fmt::format("left over: {}, allowed {}", signed_time_text(data.residue_ns),
                       time_text(data.limit_ns)));
  svg.text(kWidth - 8, y + frame.bar - 3, signed_time_text(data.residue_ns), "soft number",
           Anchor::end);
  svg.line(frame.x(data.to_ns), y + frame.bar, frame.x(data.to_ns), frame.y(residue_row + 1),
           "link");
  draw_level(svg, frame, residue_row + 1, data.to, data.to_ns);
  svg.text(frame.x.from, bottom + 32,
           fmt::format("whiskers: 95 % intervals · green band: where the sum may end ({})",
                       data.closes ? "it does" : "it does not"),
           "soft small");
  return svg;
}

// --- Time over depth

Svg draw_depths(const std::vector<DepthPoint>& points, double intercept_ns, double slope_ns) {
  const auto line = [&](double tokens) { return intercept_ns + slope_ns * tokens; };
  double deepest = 0, least = 0, most = 0;
  for (const DepthPoint& point : points) {
    deepest = std::max(deepest, static_cast<double>(point.depth));
    most = std::max({most, point.hi, line(static_cast<double>(point.depth) + 1)});
    least = least == 0 ? point.lo : std::min(least, point.lo);
  }
  if (least < 0.6 * most) least = 0;  // else the growth alone fills the drawing
  const double margin = 0.12 * (most - least);
  const double y_lo = least > 0 ? std::max(0.0, least - margin) : 0;
  Svg svg(
      "depths", kWidth, 320, "Time of a token over the depth of its cache",
      fmt::format("Measured at {} depths; the line through them rises by {} every 1,000 tokens.",
                  points.size(), time_text(slope_ns * 1000)));
  const Scale x{0, deepest * 1.04 + 1, 70, kWidth - 24}, y{y_lo, most + margin, 268, 14};
  const std::vector<double> at_y = ticks(y.lo, y.hi, 6);
  const TimeAxis axis = axis_of(y.hi, step_of(at_y));
  for (const double ns : at_y) {
    svg.line(x.from, y(ns), x.to, y(ns), "grid");
    svg.text(x.from - 8, y(ns) + 4, fmt::format("{:.{}f}", ns / axis.unit_ns, axis.digits),
             "soft small number", Anchor::end);
  }
  for (const double tokens : ticks(x.lo, x.hi, 8)) {
    svg.line(x(tokens), y.from, x(tokens), y.from + 5, "axis");
    svg.text(x(tokens), y.from + 19, fmt::format("{:.0f}", tokens), "soft small number",
             Anchor::middle);
  }
  svg.line(x.from, y.from, x.to, y.from, "axis");
  svg.text((x.from + x.to) / 2, y.from + 40, "tokens in the cache", "soft small", Anchor::middle);
  svg.text_upwards(16, (y.from + y.to) / 2, fmt::format("{} a token", axis.name), "soft small");
  svg.line(x(0), y(line(1)), x(deepest), y(line(deepest + 1)), "fit");
  for (const DepthPoint& point : points) {
    const double px = x(static_cast<double>(point.depth));
    svg.line(px, y(point.lo), px, y(point.hi), "whisker");
    for (const double end : {point.lo, point.hi})
      svg.line(px - 4, y(end), px + 4, y(end), "whisker");
    svg.circle(px, y(point.ns), point.anchor ? 6 : 4.5, point.anchor ? "dotgrow" : "dot",
               fmt::format("{} tokens: {} ({} to {})", point.depth, time_text(point.ns),
                           time_text(point.lo), time_text(point.hi)));
  }
  svg.text(x.from + 14, 30,
           fmt::format("{} + {} every 1,000 tokens", time_text(intercept_ns),
                       time_text(slope_ns * 1000)),
           "strong number");
  return svg;
}

// --- Roofline

namespace {

struct LogScale {
  Scale scale;
  double operator()(double value) const { return scale(std::log10(value)); }
};

std::string power_text(double value) {
  if (value >= 1e6) return fmt::format("{:.0f}M", value * 1e-6);
  if (value >= 1e3) return fmt::format("{:.0f}k", value * 1e-3);
  return value >= 1 ? fmt::format("{:.0f}", value) : fmt::format("{:g}", value);
}

// Powers of ten, and where those are few also 2 and 5 times them.
std::vector<double> log_ticks(const Scale& scale) {
  std::vector<double> out;
  const std::vector<double> factors =
      scale.hi - scale.lo < 2.5 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  for (double power = std::floor(scale.lo); power <= scale.hi; ++power) {
    for (const double factor : factors) {
      const double at = power + std::log10(factor);
      if (at >= scale.lo && at <= scale.hi) out.push_back(std::pow(10, power) * factor);
    }
  }
  return out;
}

void draw_log_axes(Svg& svg, const LogScale& x, const LogScale& y) {
  for (const double value : log_ticks(x.scale)) {
    svg.line(x(value), y.scale.from, x(value), y.scale.to, "grid");
    svg.text(x(value), y.scale.from + 17, power_text(value), "soft small number", Anchor::middle);
  }
  for (const double value : log_ticks(y.scale)) {
    svg.line(x.scale.from, y(value), x.scale.to, y(value), "grid");
    svg.text(x.scale.from - 8, y(value) + 4, power_text(value), "soft small number", Anchor::end);
  }
  svg.text((x.scale.from + x.scale.to) / 2, y.scale.from + 38, "operations a byte", "soft small",
           Anchor::middle);
  svg.text_upwards(16, (y.scale.from + y.scale.to) / 2, "GFLOP/s", "soft small");
}

// A slope up to the ceiling, cut at the frame.
void draw_roof(Svg& svg, const LogScale& x, const LogScale& y, double gbps,
               const std::optional<double>& gflops, const char* css, const std::string& name) {
  const double left = std::max(std::pow(10, x.scale.lo), std::pow(10, y.scale.lo) / gbps);
  double right = std::min(std::pow(10, x.scale.hi), std::pow(10, y.scale.hi) / gbps);
  if (gflops) right = std::min(right, *gflops / gbps);
  svg.line(x(left), y(left * gbps), x(right), y(right * gbps), css);
  svg.text(x(left) + 14, y(left * gbps) + 4, name, "small soft");
}

}  // namespace

Svg draw_roofline(const Roofline& data) {
  double x_lo = 1e9, x_hi = 0, y_lo = 1e9, y_hi = data.gflops.value_or(0);
  for (const RooflineOp& op : data.ops) {
    for (int i : {0, 1}) {
      x_lo = std::min(x_lo, op.intensity[i]);
      x_hi = std::max(x_hi, op.intensity[i]);
      y_lo = std::min(y_lo, op.gflops[i]);
      y_hi = std::max(y_hi, op.gflops[i]);
    }
  }
  if (data.gflops) x_hi = std::max(x_hi, *data.gflops / data.memory_gbps);
  const double key = 560;
  const LogScale x{{std::log10(x_lo) - 0.5, std::log10(x_hi) + 0.4, 60, key - 20}};
  const LogScale y{{std::log10(y_lo) - 0.4, std::log10(y_hi) + 0.25, 300, 14}};
  Svg svg(
      "roofline", kWidth, 350, "Rates of the ops against the measured peaks",
      "Each op at the first anchor (ring) and the last one (dot), joined by an arrow, below the "
      "peaks measured in the same run.");
  draw_log_axes(svg, x, y);
  if (data.cache_gbps) {
    draw_roof(svg, x, y, *data.cache_gbps, data.gflops, "cacheroof",
              fmt::format("cache {:.0f} GB/s", *data.cache_gbps));
  }
  draw_roof(svg, x, y, data.memory_gbps, data.gflops, "roof",
            fmt::format("memory {:.0f} GB/s", data.memory_gbps));
  if (data.gflops) {
    const double from = std::max(std::pow(10, x.scale.lo), *data.gflops / data.memory_gbps);
    svg.line(x(from), y(*data.gflops), x.scale.to, y(*data.gflops), "roof");
    svg.text(x.scale.to, y(*data.gflops) - 7, fmt::format("f32 {:.0f} GFLOP/s", *data.gflops),
             "small soft", Anchor::end);
  }
  svg.text(key, 26, fmt::format("○ depth {}   ● depth {}", data.depths[0], data.depths[1]),
           "small soft");
  for (size_t i = 0; i < data.ops.size(); ++i) {
    const RooflineOp& op = data.ops[i];
    const double x0 = x(op.intensity[0]), y0 = y(op.gflops[0]);
    const double x1 = x(op.intensity[1]), y1 = y(op.gflops[1]);
    svg.arrow(x0, y0, x1, y1, op.grows ? "movegrow" : "move");
    svg.circle(x0, y0, 4.5, op.grows ? "ringgrow" : "ring");
    const std::string tip = fmt::format("{}: {:.2f} operations a byte, {:.1f} to {:.1f} GFLOP/s",
                                        op.name, op.intensity[1], op.gflops[0], op.gflops[1]);
    svg.circle(x1, y1, 5, op.grows ? "dotgrow" : "dot", tip);
    // Ops of one intensity stand above each other: their numbers take turns at the sides.
    const bool right = i % 2 == 0;
    svg.text(right ? x1 + 8 : x1 - 8, y1 + 4, fmt::format("{}", i + 1), "small strong",
             right ? Anchor::start : Anchor::end);
    svg.text(key, 52 + 20 * static_cast<double>(i), fmt::format("{}  {}", i + 1, op.name),
             op.grows ? "strong" : "");
    svg.text(kWidth - 8, 52 + 20 * static_cast<double>(i),
             fmt::format("{:.1f} → {:.1f}", op.gflops[0], op.gflops[1]), "soft number small",
             Anchor::end);
  }
  return svg;
}

// --- What the time of growing ops is

Svg draw_parts(const std::vector<PartsBar>& bars) {
  double most = 1;
  for (const PartsBar& bar : bars) {
    most = std::max(most, bar.bytes_ns + bar.compute_ns + std::max(0.0, bar.exposed_ns));
  }
  const double row = 25, top = 34, bottom = top + row * static_cast<double>(bars.size());
  const Scale x{0, most * 1.02, kLeft, kWidth - 24};
  Svg svg("parts", kWidth, bottom + 40, "What the time of the growing ops is",
          "For each growing op at both anchors: its bytes at the peak bandwidth, its arithmetic "
          "beyond that, and the exposed rest.");
  double key = x.from;
  for (const auto& [css, name] : {std::pair{"bytes", "bytes at the measured peak"},
                                  {"compute", "arithmetic beyond them"},
                                  {"exposed", "exposed"}}) {
    svg.rect(key, 6, 12, 12, css);
    svg.text(key + 18, 16, name, "soft small");
    key += 190;
  }
  draw_time_axis(svg, x, top - 6, bottom, 7);
  for (size_t i = 0; i < bars.size(); ++i) {
    const PartsBar& bar = bars[i];
    const double y = top + row * static_cast<double>(i);
    svg.text(x.from - 10, y + 12, bar.name, "", Anchor::end);
    double at = 0;
    for (const auto& [css, name, ns] : {std::tuple{"bytes", "bytes", bar.bytes_ns},
                                        {"compute", "arithmetic", bar.compute_ns},
                                        {"exposed", "exposed", bar.exposed_ns}}) {
      if (ns <= 0) continue;
      svg.rect(x(at), y, x(at + ns) - x(at), 15, css,
               fmt::format("{}: {} {}", bar.name, name, time_text(ns)));
      at += ns;
    }
  }
  return svg;
}

// --- Growth by layer

Svg draw_layers(const std::vector<LayerRow>& rows) {
  size_t n_layers = 1;
  double most = 1;
  for (const LayerRow& row : rows) {
    n_layers = std::max(n_layers, row.ns.size());
    for (const double ns : row.ns) most = std::max(most, std::abs(ns));
  }
  const double left = kLeft, right = kWidth - 16, top = 10, height = 24;
  const double cell = (right - left) / static_cast<double>(n_layers);
  const double bottom = top + height * static_cast<double>(rows.size());
  Svg svg("layers", kWidth, bottom + 60, "Growth of the ops by layer",
          fmt::format("A cell for each op and layer; the strongest is {}.", time_text(most)));
  for (size_t r = 0; r < rows.size(); ++r) {
    const double y = top + height * static_cast<double>(r);
    svg.text(left - 10, y + 16, rows[r].name, "", Anchor::end);
    for (size_t layer = 0; layer < rows[r].ns.size(); ++layer) {
      const double ns = rows[r].ns[layer];
      svg.shaded(left + cell * static_cast<double>(layer), y, cell, height - 3, grow_css(ns),
                 std::abs(ns) / most,
                 fmt::format("{}, layer {}: {}", rows[r].name, layer, signed_time_text(ns)));
    }
  }
  const size_t every = std::max<size_t>(1, (n_layers + 15) / 16);
  for (size_t layer = 0; layer < n_layers; layer += every) {
    svg.text(left + cell * (static_cast<double>(layer) + 0.5), bottom + 14,
             fmt::format("{}", layer), "soft small number", Anchor::middle);
  }
  const double key = bottom + 32;
  for (int i = 0; i <= 20; ++i) {
    const double share = i / 10.0 - 1;
    svg.shaded(left + 130 + 9 * i, key, 9, 11, grow_css(share), std::abs(share), "");
  }
  svg.text(left + 122, key + 10, signed_time_text(-most), "soft small number", Anchor::end);
  svg.text(left + 328, key + 10, signed_time_text(most), "soft small number");
  svg.text(right, key + 10, "layer", "soft small", Anchor::end);
  return svg;
}

}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// The shapes as text, and the style that all drawings share.
#include "report/svg.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace fathom::report {
namespace {

std::string tip_of(std::string_view tip) {
  return tip.empty() ? "" : fmt::format("<title>{}</title>", escaped(tip));
}

constexpr const char* kStyle = R"css(
:root{--ink:#1b1f24;--soft:#5b6570;--faint:#d9dee4;--paper:#ffffff;--panel:#f6f8fa;
--grow:#d55e00;--shrink:#0072b2;--level:#6b7785;--bytes:#0072b2;--compute:#e69f00;--exposed:#d55e00;
--good:#00805c;--bad:#c23b00;--band:#009e73;--cache:#cc79a7}
@media (prefers-color-scheme:dark){:root{--ink:#e8ecf0;--soft:#a0abb6;--faint:#343c45;--paper:#14181d;--panel:#1c2229;
--grow:#ff8a3d;--shrink:#56b4e9;--level:#8b98a6;--bytes:#56b4e9;--compute:#f0c000;--exposed:#ff8a3d;
--good:#2fc79a;--bad:#ff8a3d;--band:#2fc79a;--cache:#e59ac6}}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
svg .soft{fill:var(--soft)}svg .small{font-size:11px}svg .strong{font-weight:600}svg .number{font-variant-numeric:tabular-nums}
svg .axis{stroke:var(--soft);stroke-width:1}svg .grid{stroke:var(--faint);stroke-width:1}
svg .link{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
svg .grow{fill:var(--grow)}svg .shrink{fill:var(--shrink)}svg .level{fill:var(--level)}
svg .bytes{fill:var(--bytes)}svg .compute{fill:var(--compute)}svg .exposed{fill:var(--exposed)}
svg .band{fill:var(--band);fill-opacity:.18;stroke:var(--band);stroke-width:1;stroke-dasharray:4 3}
svg .residue{fill:url(#hatch);stroke:var(--ink);stroke-width:1}
svg .whisker{stroke:var(--ink);stroke-width:1.4}
svg .fit{stroke:var(--shrink);stroke-width:2}svg .roof{stroke:var(--ink);stroke-width:2}
svg .cacheroof{stroke:var(--cache);stroke-width:2;stroke-dasharray:7 4}
svg .dot{fill:var(--shrink);stroke:var(--paper);stroke-width:1.5}
svg .ring{fill:var(--paper);stroke:var(--shrink);stroke-width:2}
svg .dotgrow{fill:var(--grow);stroke:var(--paper);stroke-width:1.5}
svg .ringgrow{fill:var(--paper);stroke:var(--grow);stroke-width:2}
svg .move{stroke:var(--shrink);stroke-width:1.6}svg .movegrow{stroke:var(--grow);stroke-width:2}
svg .cell{stroke:var(--paper);stroke-width:1}svg .blank{fill:var(--panel);stroke:var(--paper);stroke-width:1}
svg .paper{fill:var(--paper)}
)css";

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg_style() { return kStyle; }

Svg::Svg(std::string id, double width, double height, std::string title, std::string desc)
    : id_(std::move(id)),
      title_(std::move(title)),
      desc_(std::move(desc)),
      width_(width),
      height_(height) {}

void Svg::rect(double x, double y, double width, double height, std::string_view css,
               std::string_view tip) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                 "rx=\"1.5\">{}</rect>\n",
                 css, x, y, width, height, tip_of(tip));
}

void Svg::shaded(double x, double y, double width, double height, std::string_view css,
                 double share, std::string_view tip) {
  rect(x, y, width, height, "blank");
  fmt::format_to(std::back_inserter(body_),
                 "<rect class=\"{} cell\" fill-opacity=\"{:.3f}\" x=\"{:.1f}\" y=\"{:.1f}\" "
                 "width=\"{:.1f}\" height=\"{:.1f}\">{}</rect>\n",
                 css, share, x, y, width, height, tip_of(tip));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css) {
  fmt::format_to(std::back_inserter(body_),
                 "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                 css, x1, y1, x2, y2);
}

void Svg::arrow(double x1, double y1, double x2, double y2, std::string_view css) {
  const double length = std::hypot(x2 - x1, y2 - y1);
  line(x1, y1, x2, y2, css);
  if (length < 8) return;
  const double ux = (x2 - x1) / length, uy = (y2 - y1) / length;
  for (const double side : {-1.0, 1.0}) {
    line(x2, y2, x2 - 7 * ux + side * 3.5 * uy, y2 - 7 * uy - side * 3.5 * ux, css);
  }
}

void Svg::circle(double x, double y, double radius, std::string_view css, std::string_view tip) {
  fmt::format_to(std::back_inserter(body_),
                 "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\">{}</circle>\n", css,
                 x, y, radius, tip_of(tip));
}

void Svg::text(double x, double y, std::string_view text, std::string_view css, Anchor anchor) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  fmt::format_to(std::back_inserter(body_),
                 "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", css,
                 x, y, kAnchors[static_cast<int>(anchor)], escaped(text));
}

void Svg::text_upwards(double x, double y, std::string_view text, std::string_view css) {
  fmt::format_to(std::back_inserter(body_),
                 "<text class=\"{}\" text-anchor=\"middle\" transform=\"translate({:.1f} {:.1f}) "
                 "rotate(-90)\">{}</text>\n",
                 css, x, y, escaped(text));
}

std::string Svg::str() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"{0}\" role=\"img\" viewBox=\"0 0 {1:.0f} "
      "{2:.0f}\" aria-labelledby=\"{0}-title {0}-desc\">\n"
      "<title id=\"{0}-title\">{3}</title><desc id=\"{0}-desc\">{4}</desc>\n"
      "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect class=\"paper\" width=\"6\" height=\"6\"/><line "
      "x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" class=\"whisker\"/></pattern></defs>\n{5}</svg>\n",
      id_, width_, height_, escaped(title_), escaped(desc_), body_);
}

std::string Svg::file() const {
  std::string out = str();
  const size_t end_of_tag = out.find('>') + 1;
  return out.insert(end_of_tag, fmt::format("<style>{}</style>", svg_style()));
}

std::vector<double> ticks(double lo, double hi, int n) {
  const double raw = (hi - lo) / n;
  if (!(raw > 0)) return {lo};
  const double magnitude = std::pow(10, std::floor(std::log10(raw)));
  double step = magnitude;  // the nearest of these by ratio
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (raw * raw > step * factor * magnitude) step = factor * magnitude;
  }
  std::vector<double> out;
  for (double at = std::ceil(lo / step - 1e-9) * step; at <= hi + 1e-9 * step; at += step) {
    out.push_back(std::abs(at) < step * 1e-9 ? 0 : at);
  }
  return out;
}

}  // namespace fathom::report

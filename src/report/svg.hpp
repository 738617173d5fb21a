// SPDX-License-Identifier: Apache-2.0
// A drawing as SVG text, to stand in a page or alone. Colours come from the classes of
// svg_style(), which follow the page's light or dark scheme and are told apart by colour-blind
// readers (Okabe and Ito's set).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::report {

// & < > " as entities.
std::string escaped(std::string_view text);

enum class Anchor { start, middle, end };

class Svg {
 public:
  // `title` and `desc` say to a reader who cannot see it what is drawn.
  Svg(std::string id, double width, double height, std::string title, std::string desc);

  // `tip` is shown while the pointer rests on the shape; empty = none.
  void rect(double x, double y, double width, double height, std::string_view css,
            std::string_view tip = "");
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void arrow(double x1, double y1, double x2, double y2, std::string_view css);
  void circle(double x, double y, double radius, std::string_view css, std::string_view tip = "");
  void text(double x, double y, std::string_view text, std::string_view css = "",
            Anchor anchor = Anchor::start);
  // The text stands on its side, read upwards.
  void text_upwards(double x, double y, std::string_view text, std::string_view css = "");
  // Filled with a colour between two classes' colours: share 0..1.
  void shaded(double x, double y, double width, double height, std::string_view css, double share,
              std::string_view tip);

  std::string str() const;
  // With its own style, as a file.
  std::string file() const;

 private:
  std::string id_, title_, desc_, body_;
  double width_, height_;
};

// The classes' colours, as CSS.
std::string svg_style();

// Round numbers for an axis from lo to hi, about n of them.
std::vector<double> ticks(double lo, double hi, int n);

}  // namespace fathom::report

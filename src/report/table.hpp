// SPDX-License-Identifier: Apache-2.0
// A table of text cells, printed aligned for people or as GitHub markdown. Width is counted in code
// points, so that "µs" aligns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::report {

enum class Align { left, right };
enum class Paint { plain, heading, good, bad, dim };

// The text in the escape codes of a colour, or as it is.
std::string painted(std::string_view text, Paint paint, bool colour);

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::right;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell for each column.
  void add(std::vector<std::string> cells, Paint paint = Paint::plain);
  void add_rule();  // a line between rows
  bool empty() const { return rows_.empty(); }

  std::string text(bool colour = false) const;
  std::string markdown() const;

 private:
  struct Row {
    std::vector<std::string> cells;  // empty = a rule
    Paint paint;
  };
  std::vector<size_t> widths() const;
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// 1536 -> "1.50 KiB"; decimal point and three digits as in llama-bench's size column.
std::string format_bytes(int64_t bytes);
// 134515008 -> "134.52 M"
std::string format_count(int64_t count);
// Three significant digits, no exponent: 0.0123, 1.23, 123, 12345.
std::string format_figure(double value);

}  // namespace fathom::report

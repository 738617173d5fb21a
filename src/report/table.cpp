// SPDX-License-Identifier: Apache-2.0
// The two forms of a table, and how bytes, counts and figures are written everywhere.
#include "report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace fathom::report {
namespace {

constexpr const char* kReset = "\x1b[0m";

const char* escape_of(Paint paint) {
  static constexpr const char* kEscapes[] = {"", "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m"};
  return kEscapes[static_cast<int>(paint)];
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, Align align) {
  const size_t has = display_width(text);
  const std::string fill(width > has ? width - has : 0, ' ');
  return align == Align::left ? text + fill : fill + text;
}

void trim_right(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::string painted(std::string_view text, Paint paint, bool colour) {
  if (!colour || paint == Paint::plain) return std::string(text);
  return fmt::format("{}{}{}", escape_of(paint), text, kReset);
}

void Table::add(std::vector<std::string> cells, Paint paint) {
  FATHOM_CHECK(cells.size() == columns_.size(), "a table row with another number of cells");
  rows_.push_back({std::move(cells), paint});
}

void Table::add_rule() { rows_.push_back({{}, Paint::dim}); }

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const Row& row : rows_) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row.cells[i]));
    }
  }
  return widths;
}

std::string Table::text(bool colour) const {
  const std::vector<size_t> width = widths();
  size_t total = 2 * (columns_.size() - 1);
  for (size_t w : width) total += w;
  std::string out;
  const auto add_line = [&](const auto& cell_of, Paint paint) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i) line += "  ";
      line += padded(cell_of(i), width[i], columns_[i].align);
    }
    trim_right(line);
    out += painted(line, paint, colour) + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; }, Paint::heading);
  for (const Row& row : rows_) {
    if (row.cells.empty()) {
      out += painted(std::string(total, '-'), Paint::dim, colour) + "\n";
    } else {
      add_line([&](size_t i) -> const std::string& { return row.cells[i]; }, row.paint);
    }
  }
  return out;
}

std::string Table::markdown() const {
  std::vector<size_t> width = widths();
  for (size_t& w : width) w = std::max<size_t>(w, 2);  // room for a dash and a colon
  const auto escaped = [](std::string cell) {
    for (size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
      cell.insert(at, "\\");
    }
    return cell;
  };
  std::string head = "|", rule = "|";
  for (size_t i = 0; i < columns_.size(); ++i) {
    head += " " + padded(columns_[i].title, width[i], columns_[i].align) + " |";
    std::string dashes(width[i], '-');
    if (columns_[i].align == Align::right) dashes.back() = ':';
    rule += " " + dashes + " |";
  }
  std::string out = head + "\n" + rule + "\n";
  for (const Row& row : rows_) {
    if (row.cells.empty()) continue;
    out += "|";
    for (size_t i = 0; i < row.cells.size(); ++i) {
      out += " " + padded(escaped(row.cells[i]), width[i], columns_[i].align) + " |";
    }
    out += "\n";
  }
  return out;
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string format_count(int64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.2f} K", value / 1e3);
  return fmt::format("{}", count);
}

std::string format_figure(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(2 - magnitude, 0, 6));
}

}  // namespace fathom::report

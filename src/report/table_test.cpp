// SPDX-License-Identifier: Apache-2.0
// Columns align by code points, markdown is escaped, colour comes only when asked for.
#include "report/table.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace fathom::report {
namespace {

Table example() {
  Table table({{"op", Align::left}, {"µs"}});
  table.add({"attn", "12.5"});
  table.add_rule();
  table.add({"a|b", "3"}, Paint::bad);
  return table;
}

TEST(Table, AlignsByCodePoints) {
  EXPECT_EQ(example().text(),
            "op      µs\n"
            "attn  12.5\n"
            "----------\n"
            "a|b      3\n");
}

TEST(Table, MarkdownEscapesAndAligns) {
  EXPECT_EQ(example().markdown(),
            "| op   |   µs |\n"
            "| ---- | ---: |\n"
            "| attn | 12.5 |\n"
            "| a\\|b |    3 |\n");
}

TEST(Table, ColourOnlyWhenAsked) {
  EXPECT_EQ(example().text().find('\x1b'), std::string::npos);
  EXPECT_NE(example().text(true).find("\x1b[31ma|b"), std::string::npos);
  EXPECT_EQ(painted("x", Paint::bad, false), "x");
}

TEST(Table, WrongNumberOfCellsIsAnError) {
  Table table({{"a"}, {"b"}});
  EXPECT_THROW(table.add({"1"}), Error);
}

TEST(Format, BytesCountsAndFigures) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(format_count(134515008), "134.52 M");
  EXPECT_EQ(format_count(7615616512), "7.62 B");
  EXPECT_EQ(format_figure(0.012345), "0.0123");
  EXPECT_EQ(format_figure(1.2345), "1.23");
  EXPECT_EQ(format_figure(123.45), "123");
  EXPECT_EQ(format_figure(12345), "12345");
  EXPECT_EQ(format_figure(-0.5), "-0.500");
  EXPECT_EQ(format_figure(0), "0");
}

}  // namespace
}  // namespace fathom::report

// SPDX-License-Identifier: Apache-2.0
// JSON of unknown origin is refused with its place, and what JSON cannot hold is written all the
// same.
#include "base/json.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace fathom {
namespace {

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, RefusesDeepNestingBeforeItIsParsed) {
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth), "x"));
  EXPECT_THROW(parse_json(nested(kMaxJsonDepth + 1), "x"), Error);
  EXPECT_THROW(parse_json(nested(1'000'000), "x"), Error);
}

TEST(Json, BracketsInsideStringsAreNotNesting) {
  const std::string text = "\"" + std::string(200, '[') + "\\\"" + std::string(200, '{') + "\"";
  EXPECT_EQ(parse_json(text, "x").get<std::string>().size(), 401u);
}

TEST(Json, ErrorNamesSourceAndByte) {
  try {
    parse_json("{\"a\": ]", "peak.json");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_file);
    EXPECT_EQ(std::string(e.what()), "peak.json: not valid JSON at byte 7");
  }
}

TEST(Json, ANumberThatIsNoneIsRefused) {
  try {
    parse_json("{\"a\": 1e0737}", "peak.json");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_file);
    EXPECT_EQ(std::string(e.what()), "peak.json: not valid JSON: a number beyond 1e308");
  }
}

TEST(Json, WritesWhatHasNoJsonForm) {
  EXPECT_EQ(dump_json(Json{{"x", std::nan("")}}), "{\"x\":null}");
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The stop matcher against a search of the whole text, over all ways to cut it into pieces.
#include "text/stop_matcher.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "fathom/error.hpp"

namespace fathom::text {
namespace {

struct Result {
  std::string text;
  std::string stop;
  bool operator==(const Result&) const = default;
};

// The first end of a match decides; there, the longest stop string.
Result search(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > best.size()) {
        best = stop;
      }
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

Result stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& piece : pieces) {
    if (matcher.push(piece, result.text)) break;
  }
  matcher.flush(result.text);
  result.stop = matcher.matched();
  return result;
}

// A small alphabet, so that stop strings overlap with the text, each other and themselves.
rc::Gen<std::string> word(int longest) {
  return rc::gen::resize(longest, rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')));
}

TEST(StopMatcher, EqualsSearchForEveryChunking) {
  EXPECT_TRUE(rc::check("stream equals search", [] {
    const auto text = *word(12);
    auto stops = *rc::gen::container<std::vector<std::string>>(2, rc::gen::nonEmpty(word(4)));
    const Result expected = search(text, stops);
    const size_t n_cuts = text.size() > 1 ? text.size() - 1 : 0;
    for (size_t cuts = 0; cuts < (size_t{1} << n_cuts); ++cuts) {
      std::vector<std::string> pieces(1);
      for (size_t i = 0; i < text.size(); ++i) {
        if (i > 0 && (cuts >> (i - 1) & 1)) pieces.emplace_back();
        pieces.back().push_back(text[i]);
      }
      RC_ASSERT(stream(pieces, stops) == expected);
    }
  }));
}

// What has left is right at every moment: a prefix of the result, short by less than a stop string.
TEST(StopMatcher, HoldsBackOnlyWhatCouldStillMatch) {
  EXPECT_TRUE(rc::check("nothing leaks, nothing lingers", [] {
    const auto text = *word(40);
    const auto stops = *rc::gen::container<std::vector<std::string>>(3, rc::gen::nonEmpty(word(6)));
    const Result expected = search(text, stops);
    StopMatcher matcher(stops);
    std::string out;
    for (size_t i = 0; i < text.size() && !matcher.stopped(); ++i) {
      matcher.push(std::string_view(text).substr(i, 1), out);
      RC_ASSERT(expected.text.starts_with(out));
      if (matcher.stopped()) break;
      const std::string held = text.substr(out.size(), i + 1 - out.size());
      bool may_match = held.empty();
      for (const std::string& stop : stops) may_match |= stop.starts_with(held);
      RC_ASSERT(may_match);
    }
  }));
}

TEST(StopMatcher, WorkedExamples) {
  EXPECT_EQ(stream({"Hello\nUs", "er: hi"}, {"\nUser:"}), (Result{"Hello", "\nUser:"}));
  EXPECT_EQ(stream({"Hello\nUs", "ing"}, {"\nUser:"}), (Result{"Hello\nUsing", ""}));
  EXPECT_EQ(stream({"one STOP two"}, {"STOP"}), (Result{"one ", "STOP"}));  // not only a suffix
  EXPECT_EQ(stream({"aab"}, {"ab"}), (Result{"a", "ab"}));
  EXPECT_EQ(stream({"xabc"}, {"abc", "b"}), (Result{"xa", "b"}));
  EXPECT_EQ(stream({"xabc"}, {"bc", "abc"}), (Result{"x", "abc"}));
}

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({"a", ""}), Error); }

}  // namespace
}  // namespace fathom::text

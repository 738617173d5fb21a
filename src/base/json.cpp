// SPDX-License-Identifier: Apache-2.0
// The depth limit, found before the library parses, and what nlohmann-json throws turned into
// Error.
#include "base/json.hpp"

#include "base/error.hpp"

namespace fathom {
namespace {

// The deepest nesting of brackets outside strings, found without recursion: nlohmann-json parses a
// document of any depth, but destroying or dumping a very deep one overflows the stack.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  if (const int depth = nesting_depth(text); depth > kMaxJsonDepth) {
    fail(ErrorCode::bad_file, "{}: JSON is nested {} deep, at most {} is accepted", what, depth,
         kMaxJsonDepth);
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    fail(ErrorCode::bad_file, "{}: not valid JSON at byte {}", what, e.byte);
  } catch (const Json::out_of_range&) {
    fail(ErrorCode::bad_file, "{}: not valid JSON: a number beyond 1e308", what);
  }
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fathom

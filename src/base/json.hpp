// SPDX-License-Identifier: Apache-2.0
// JSON in and out. Parsing is safe for hostile text: nesting stops at kMaxJsonDepth, and errors say
// where. Writing never throws on text that is not UTF-8 (it is replaced) and keeps key order.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fathom {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

// Throws Error{bad_file} that names `what` (a path, "request body"), the byte and the reason.
Json parse_json(std::string_view text, std::string_view what);

// indent < 0 writes one line. NaN and infinities become null.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace fathom

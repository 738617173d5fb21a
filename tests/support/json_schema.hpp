// SPDX-License-Identifier: Apache-2.0
// The part of JSON Schema that docs/result_schema.md uses: type, const, enum, required, properties,
// additionalProperties: false, items, minItems, minimum. A keyword outside it is an error, so that
// the schema cannot grow past its checker.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tests/support/gguf_bytes.hpp"

namespace fathom::test {

inline bool has_json_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == "null" && value.is_null();
}

inline void check_schema(const Json& value, const Json& schema, const std::string& path,
                         std::vector<std::string>& problems) {
  static const std::set<std::string> kKnown{
      "$schema", "title",    "type",       "const",
      "enum",    "required", "properties", "additionalProperties",
      "items",   "minItems", "minimum"};
  for (const auto& [key, unused] : schema.items()) {
    if (!kKnown.count(key)) problems.push_back(fmt::format("{}: unknown keyword {}", path, key));
  }
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    bool fits = false;
    if (type.is_string()) {
      fits = has_json_type(value, type.get<std::string>());
    } else {
      for (const Json& one : type) fits |= has_json_type(value, one.get<std::string>());
    }
    if (!fits) problems.push_back(fmt::format("{}: not of type {}", path, dump_json(type)));
  }
  if (schema.contains("const") && value != schema["const"]) {
    problems.push_back(fmt::format("{}: not {}", path, dump_json(schema["const"])));
  }
  if (schema.contains("enum")) {
    bool found = false;
    for (const Json& one : schema["enum"]) found |= one == value;
    if (!found) problems.push_back(fmt::format("{}: {} not allowed", path, dump_json(value)));
  }
  if (schema.contains("minimum") && value.is_number() &&
      value.get<double>() < schema["minimum"].get<double>()) {
    problems.push_back(fmt::format("{}: below the minimum", path));
  }
  if (value.is_array()) {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>()) {
      problems.push_back(fmt::format("{}: too few items", path));
    }
    if (schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i) {
        check_schema(value[i], schema["items"], fmt::format("{}[{}]", path, i), problems);
      }
    }
  }
  if (value.is_object()) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) {
        problems.push_back(fmt::format("{}: {} is missing", path, dump_json(name)));
      }
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, child] : value.items()) {
      if (properties.contains(key)) {
        check_schema(child, properties[key], path + "." + key, problems);
      } else if (schema.contains("additionalProperties")) {
        problems.push_back(fmt::format("{}: {} is not in the schema", path, key));
      }
    }
  }
}

// The last JSON block of docs/result_schema.md.
inline Json result_schema() {
  const std::string text = read_file(FATHOM_SOURCE_DIR "/docs/result_schema.md");
  const std::string open = "```json\n";
  const size_t begin = text.rfind(open) + open.size();
  return parse_json(text.substr(begin, text.find("```", begin) - begin), "docs/result_schema.md");
}

// What is wrong with a result document; empty when nothing is.
inline std::vector<std::string> result_problems(const Json& document) {
  std::vector<std::string> problems;
  check_schema(document, result_schema(), "$", problems);
  return problems;
}

}  // namespace fathom::test

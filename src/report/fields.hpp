// SPDX-License-Identifier: Apache-2.0
// Values out of JSON that somebody else may have written: each getter says in one line where what
// was expected is not there ("samples[3].ns: expected a number, found a string").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace fathom::report {

class Fields {
 public:
  // `path` names the value in messages; empty for a document.
  Fields(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  // All throw Error{bad_file}.
  Fields at(const char* key) const;  // of an object
  Fields at(size_t index) const;     // REQUIRES: index < size()
  size_t size() const;               // of an array
  bool has(const char* key) const;   // an object with the key, and not null
  double number() const;             // 0, or of a size to reckon with
  double positive() const;
  int64_t whole(int64_t least = INT64_MIN) const;
  uint64_t unsigned_whole() const;
  std::string text() const;
  bool boolean() const;
  std::vector<double> numbers() const;

  // The key's value, or what stands in for one that is missing or null.
  std::optional<double> number_at(const char* key) const;
  int64_t whole_at(const char* key, int64_t otherwise) const;
  std::string text_at(const char* key, const std::string& otherwise = "") const;

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const Json* value_;
  std::string path_;
};

}  // namespace fathom::report

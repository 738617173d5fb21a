// SPDX-License-Identifier: Apache-2.0
// The getters and the words for what was found instead.
#include "report/fields.hpp"

#include <cmath>

#include "base/error.hpp"

namespace fathom::report {
namespace {

constexpr double kLeastNumber = 1e-150, kMostNumber = 1e150;

}  // namespace

void Fields::refuse(const std::string& expected) const {
  fail(ErrorCode::bad_file, "{}: expected {}, found {}", path_.empty() ? "the document" : path_,
       expected, value_->is_null() ? "null" : std::string("a ") + value_->type_name());
}

Fields Fields::at(const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  const std::string path = path_.empty() ? key : path_ + "." + key;
  if (found == value_->end()) fail(ErrorCode::bad_file, "{} is missing", path);
  return {*found, path};
}

Fields Fields::at(size_t index) const {
  return {value_->at(index), path_ + "[" + std::to_string(index) + "]"};
}

size_t Fields::size() const {
  if (!value_->is_array()) refuse("an array");
  return value_->size();
}

bool Fields::has(const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

double Fields::number() const {
  if (!value_->is_number()) refuse("a number");
  const double value = value_->get<double>();
  // Squares and quotients of two such numbers are numbers still.
  const double size = std::abs(value);
  if (!(size == 0 || (size >= kLeastNumber && size <= kMostNumber))) {
    refuse("0 or a number from 1e-150 to 1e150");
  }
  return value;
}

double Fields::positive() const {
  const double value = number();
  if (value <= 0) fail(ErrorCode::bad_file, "{}: expected more than 0, found {}", path_, value);
  return value;
}

int64_t Fields::whole(int64_t least) const {
  if (!value_->is_number_integer()) refuse("a whole number");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    refuse("a whole number below 2^63");
  }
  const int64_t value = value_->get<int64_t>();
  if (value < least) {
    fail(ErrorCode::bad_file, "{}: expected at least {}, found {}", path_, least, value);
  }
  return value;
}

uint64_t Fields::unsigned_whole() const {
  return value_->is_number_unsigned() ? value_->get<uint64_t>() : static_cast<uint64_t>(whole(0));
}

std::string Fields::text() const {
  if (!value_->is_string()) refuse("text");
  return value_->get<std::string>();
}

bool Fields::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::vector<double> Fields::numbers() const {
  std::vector<double> out;
  const size_t n = size();
  for (size_t i = 0; i < n; ++i) out.push_back(at(i).number());
  return out;
}

std::optional<double> Fields::number_at(const char* key) const {
  if (!has(key)) return {};
  return at(key).number();
}

int64_t Fields::whole_at(const char* key, int64_t otherwise) const {
  return has(key) ? at(key).whole() : otherwise;
}

std::string Fields::text_at(const char* key, const std::string& otherwise) const {
  return has(key) ? at(key).text() : otherwise;
}

}  // namespace fathom::report

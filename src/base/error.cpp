// SPDX-License-Identifier: Apache-2.0
// What FATHOM_CHECK throws: an internal error with the condition and its place below src/.
#include "base/error.hpp"

namespace fathom {

void check_failed(const char* condition, const char* message, std::source_location where) {
  fail(ErrorCode::internal, "internal error: {} ({} at {}:{})", message, condition,
       file_below_src(where), where.line());
}

std::string_view file_below_src(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto src = file.rfind("/src/"); src != file.npos) file.remove_prefix(src + 5);
  return file;
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// What FATHOM_CHECK throws: an internal error with the condition and its place below src/.
#include "base/error.hpp"

#include <string_view>

namespace fathom {

void check_failed(const char* condition, const char* message, std::source_location where) {
  std::string_view file = where.file_name();
  if (auto src = file.rfind("/src/"); src != std::string_view::npos) file.remove_prefix(src + 5);
  fail(ErrorCode::internal, "internal error: {} ({} at {}:{})", message, condition, file,
       where.line());
}

}  // namespace fathom

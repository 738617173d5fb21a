// SPDX-License-Identifier: Apache-2.0
// The check that a path may be replaced, and the name of a file until it is whole.
#include "base/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace fathom {

void require_replaceable(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  fail(ErrorCode::bad_file,
       "{}: found {}, expected a regular file or a name that is free; give another path",
       printable(path, path.size() * 4),
       std::filesystem::is_directory(status) ? "a folder" : "a device or another special file");
}

std::string partial_name(const std::string& path) {
  return fmt::format("{}.{}.partial", path, getpid());
}

}  // namespace fathom

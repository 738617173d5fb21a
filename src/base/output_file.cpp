// SPDX-License-Identifier: Apache-2.0
// The check that a path may be replaced, and the name of a file until it is whole.
#include "base/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

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

void require_writable(const std::string& path) {
  require_replaceable(path);
  const std::string partial = partial_name(path);
  if (!std::ofstream(partial)) {
    fail(ErrorCode::bad_file, "cannot write {}: {}", path, std::strerror(errno));
  }
  std::remove(partial.c_str());
}

void write_text_file(const std::string& path, const std::string& text) {
  require_replaceable(path);
  const std::string partial = partial_name(path);
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(partial.c_str());
    fail(ErrorCode::bad_file, "cannot write {}: {}", path, why);
  }
}

}  // namespace fathom

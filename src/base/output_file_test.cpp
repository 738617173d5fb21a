// SPDX-License-Identifier: Apache-2.0
// Folders, pipes and devices are never replaced, through links neither.
#include "base/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"

namespace fathom {
namespace {

TEST(OutputFile, OnlyRegularFilesAreReplaced) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("fathom_output_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string pipe = folder / "pipe", file = folder / "file";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(file) << "old";
  std::filesystem::create_symlink(file, folder / "link");
  std::filesystem::create_symlink(pipe, folder / "pipe_link");
  EXPECT_NO_THROW(require_replaceable(file));
  EXPECT_NO_THROW(require_replaceable(folder / "link"));
  EXPECT_NO_THROW(require_replaceable(folder / "free"));
  for (const std::string& path :
       {pipe, (folder / "pipe_link").string(), folder.string(), std::string("/dev/null")}) {
    EXPECT_THROW(require_replaceable(path), Error) << path;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fathom

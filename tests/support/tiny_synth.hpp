// SPDX-License-Identifier: Apache-2.0
// Small quantised models made by synth for the tests of this process, removed when it ends.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "convert/synth.hpp"

namespace fathom::test {

// The path of a model of this shape and type with a vocabulary of 1024.
inline std::string tiny_synth(const std::string& shape, const std::string& type) {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("fathom_tiny_" + std::to_string(getpid()));
    std::map<std::string, std::string> files;
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static Folder folder;
  std::string& file = folder.files[shape + "." + type];
  if (file.empty()) {
    file = (folder.path / (shape + "." + type + ".gguf")).string();
    convert::SynthOptions options;
    options.shape = shape;
    options.type = type;
    options.n_threads = 1;
    convert::synth(options, file);
  }
  return file;
}

}  // namespace fathom::test

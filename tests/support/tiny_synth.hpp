// SPDX-License-Identifier: Apache-2.0
// Small quantised models made by synth for the tests of this process, removed when it ends.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "convert/synth.hpp"

namespace fathom::test {

// The path of the model that synth writes for these options.
inline std::string tiny_synth(const convert::SynthOptions& options) {
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
  std::string& file = folder.files[options.shape + "." + options.type];
  if (file.empty()) {
    file = (folder.path / (options.shape + "." + options.type + ".gguf")).string();
    convert::synth(options, file);
  }
  return file;
}

inline std::string tiny_synth(const std::string& shape, const std::string& type) {
  convert::SynthOptions options;
  options.shape = shape;
  options.type = type;
  options.n_threads = 1;
  return tiny_synth(options);
}

}  // namespace fathom::test

// SPDX-License-Identifier: Apache-2.0
// Writes a target's seeds into a folder, for libFuzzer: fuzz_<name>_seeds FOLDER.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "fuzz_target.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  size_t i = 0;
  for (const std::string& seed : fathom::fuzz::seeds()) {
    std::ofstream out(folder / fmt::format("seed_{:05}", i++), std::ios::binary);
    if (!out.write(seed.data(), static_cast<std::streamsize>(seed.size()))) return 1;
  }
  return 0;
}

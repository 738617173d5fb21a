// SPDX-License-Identifier: Apache-2.0
// The first file that exists decides: a library that is there but does not fit is an error, not a
// reason to look further, since the user would get another backend than the one put in place.
#include "device/backend_loader.hpp"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"

namespace fathom {
namespace {

namespace fs = std::filesystem;

std::string directory_of_program() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

std::string directory_of_libfathom() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&backend_search_path), &info) || !info.dli_fname) {
    return {};
  }
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path().string();
}

bool is_backend_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

const Backend& open_library(std::string_view name, const std::string& path) {
  // NODELETE: objects and exceptions of the library may live anywhere. NOW: a missing symbol shows
  // here and not in the middle of a step.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    fail(ErrorCode::unavailable, "cannot load backend '{}': {}; rebuild it for this machine", name,
         dlerror());
  }
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(library, kBackendSymbol));
  if (!entry) {
    fail(ErrorCode::unavailable, "{} is no Fathom backend: it has no symbol {}; remove it", path,
         kBackendSymbol);
  }
  const Backend* backend = entry(kBackendAbi);
  if (!backend || backend->abi != kBackendAbi) {
    fail(ErrorCode::unavailable,
         "{} does not speak backend interface {}, which this Fathom needs{}; rebuild it from the "
         "same sources",
         path, kBackendAbi, backend ? fmt::format(" (it speaks {})", backend->abi) : "");
  }
  if (!backend->device || name != backend->name) {
    fail(ErrorCode::unavailable, "{} calls itself '{}', expected a complete backend '{}'", path,
         backend->name, name);
  }
  return *backend;
}

}  // namespace

std::vector<std::string> backend_search_path(const std::string& backend_dir) {
  std::vector<std::string> directories;
  const auto add = [&](const std::string& directory) {
    if (!directory.empty() && std::ranges::find(directories, directory) == directories.end()) {
      directories.push_back(directory);
    }
  };
  add(backend_dir);
  add(directory_of_program());
  if (const std::string lib = directory_of_libfathom(); !lib.empty()) add(lib + "/fathom");
  return directories;
}

const Backend& load_backend(std::string_view name, const std::string& backend_dir) {
  if (!is_backend_name(name)) {
    fail(ErrorCode::usage, "'{}' is no backend name, expected one such as cpu, cuda or reference",
         name);
  }
  const std::vector<std::string> directories = backend_search_path(backend_dir);
  const std::string file = fmt::format("libfathom_{}.so", name);
  std::vector<std::string> searched;  // in a build folder lib/fathom is the program, no folder
  for (const std::string& directory : directories) {
    const std::string path = (fs::path(directory) / file).string();
    std::error_code ignored;
    if (fs::exists(path, ignored)) return open_library(name, path);
    if (!fs::is_regular_file(directory, ignored)) searched.push_back(directory);
  }
  fail(ErrorCode::unavailable,
       "backend '{}' is not on this machine: no {} in {}; build it (README.md says how), give its "
       "folder with --backend-dir, or use --backend cpu",
       name, file, fmt::join(searched, ", "));
}

}  // namespace fathom

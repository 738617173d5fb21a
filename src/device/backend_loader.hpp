// SPDX-License-Identifier: Apache-2.0
// Finds and opens backends that are libraries: libfathom_<name>.so with the symbol
//   extern "C" const fathom::Backend* fathom_backend(uint32_t abi);
// which returns null for an abi that it does not speak. Searched in order: the directory the caller
// names, the directory of the program, and fathom/ beside libfathom (lib/fathom when installed).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "device/backend.hpp"

namespace fathom {

using BackendEntry = const Backend* (*)(uint32_t abi);
inline constexpr const char* kBackendSymbol = "fathom_backend";

// The directories in which load_backend looks. `backend_dir` may be empty.
std::vector<std::string> backend_search_path(const std::string& backend_dir);

// Opens the library of `name`; it stays loaded until the process ends, so the reference stays valid
// and an exception of the library can be caught anywhere. Throws Error{unavailable} when there is
// no such library or it does not fit, Error{usage} when `name` is no backend name ([a-z0-9_]+).
const Backend& load_backend(std::string_view name, const std::string& backend_dir);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// FATHOM_CHECK guards invariants in every build, FATHOM_DCHECK in debug builds only. Without fmt,
// which nvcc cannot compile, so that launchers in .cu files can use them.
#pragma once

#include <source_location>
#include <string_view>

#include "fathom/error.hpp"

namespace fathom {

// Throws Error{internal} that names the broken condition and where it stands.
[[noreturn]] void check_failed(const char* condition, const char* message,
                               std::source_location where = std::source_location::current());

// The file of a place as messages show it: below src/.
std::string_view file_below_src(const std::source_location& where);

}  // namespace fathom

#define FATHOM_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::fathom::check_failed(#condition, message))
#ifdef NDEBUG
#define FATHOM_DCHECK(condition, message) void(0)
#else
#define FATHOM_DCHECK(condition, message) FATHOM_CHECK(condition, message)
#endif

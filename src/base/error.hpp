// SPDX-License-Identifier: Apache-2.0
// Throwing helpers: fail() formats a message, FATHOM_CHECK guards invariants in every build and
// FATHOM_DCHECK in debug builds only.
#pragma once

#include <fmt/format.h>

#include <source_location>

#include "fathom/error.hpp"

namespace fathom {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error{internal} that names the broken condition and where it stands.
[[noreturn]] void check_failed(const char* condition, const char* message,
                               std::source_location where = std::source_location::current());

}  // namespace fathom

#define FATHOM_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::fathom::check_failed(#condition, message))
#ifdef NDEBUG
#define FATHOM_DCHECK(condition, message) void(0)
#else
#define FATHOM_DCHECK(condition, message) FATHOM_CHECK(condition, message)
#endif

// SPDX-License-Identifier: Apache-2.0
// fail() formats a message and throws it; the checks of base/check.hpp come with it.
#pragma once

#include <fmt/format.h>

#include "base/check.hpp"
#include "fathom/error.hpp"

namespace fathom {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The formatting front of a LogSink.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "fathom/log.hpp"

namespace fathom {

// A logger passed by value; null means silent.
class Log {
 public:
  Log() = default;
  explicit Log(LogSink* sink) : sink_(sink) {}

  template <class... Args>
  void operator()(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (sink_) sink_->write(level, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  LogSink* sink_ = nullptr;
};

}  // namespace fathom

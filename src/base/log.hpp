// SPDX-License-Identifier: Apache-2.0
// Where the library's talk goes. The program installs a sink; without one nothing is printed.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace fathom {

enum class LogLevel { debug, info, warning };

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) = 0;
};

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

// SPDX-License-Identifier: Apache-2.0
// Where the library's talk goes. The program installs a sink; without one nothing is printed.
#pragma once

#include <string_view>

namespace fathom {

enum class LogLevel { debug, info, warning };

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) = 0;
};

}  // namespace fathom

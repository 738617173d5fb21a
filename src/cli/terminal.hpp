// SPDX-License-Identifier: Apache-2.0
// Where output goes: data to stdout, talk to stderr. Colour only on a terminal and never with
// NO_COLOR; a progress bar only when stderr is a terminal.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/log.hpp"

namespace fathom::cli {

// The reader of stdout went away: not an error of ours, the program ends quietly.
struct BrokenPipe {};

// Writes all of it at once, unbuffered. Throws BrokenPipe, or Error{internal} when a file is full.
void write_stdout(std::string_view text);
// One line; a progress bar that stands there is erased first.
void write_stderr_line(std::string_view line);

bool stdout_colour();
bool stderr_colour();

// Talk that -q silences.
template <class... Args>
void say(bool quiet, fmt::format_string<Args...> format, Args&&... args) {
  if (!quiet) write_stderr_line(fmt::format(format, std::forward<Args>(args)...));
}

// The library's log: warnings always, info unless -q, debug with -v.
class TerminalLog : public LogSink {
 public:
  TerminalLog(bool verbose, bool quiet) : verbose_(verbose), quiet_(quiet) {}
  void write(LogLevel level, std::string_view message) override;

 private:
  bool verbose_, quiet_;
};

// "loading  [#####.....]  50 %". Draws at most ten times a second and erases itself.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool quiet);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(double fraction);
  void clear();

 private:
  std::string label_;
  bool enabled_;
  int64_t drawn_ns_ = 0;
};

}  // namespace fathom::cli

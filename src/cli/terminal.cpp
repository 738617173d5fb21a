// SPDX-License-Identifier: Apache-2.0
// Writes that survive partial writes and closed pipes, and the drawing and erasing of the bar.
#include "cli/terminal.hpp"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/interrupt.hpp"
#include "measure/clock.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int kBarWidth = 30;
constexpr std::string_view kEraseLine = "\r\x1b[K";

// True while a progress bar stands on the last line of stderr.
bool bar_shown = false;

// 0, or the errno of the write that failed: EINTR when Ctrl-C ended the wait for a reader. Pieces
// that a pipe with room takes whole, so that no write waits where a signal may have come before it.
int write_all(int fd, std::string_view text) {
  constexpr int kPollMilliseconds = 100;
  while (!text.empty()) {
    pollfd output{fd, POLLOUT, 0};
    if (::poll(&output, 1, kPollMilliseconds) <= 0) {
      if (interrupted()) return EINTR;
      continue;
    }
    const ssize_t n = ::write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return errno;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

bool colour_on(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) && !(no_color && *no_color) && !(term && std::strcmp(term, "dumb") == 0);
}

}  // namespace

void write_stdout(std::string_view text) {
  const int problem = write_all(STDOUT_FILENO, text);
  if (problem == EPIPE) throw BrokenPipe{};
  if (problem == EINTR) fail(ErrorCode::cancelled, "interrupted");
  if (problem != 0)
    fail(ErrorCode::internal, "cannot write the output: {}", std::strerror(problem));
}

void write_stderr_line(std::string_view line) {
  std::string text;
  if (bar_shown) text = kEraseLine;
  bar_shown = false;
  text += line;
  text += '\n';
  write_all(STDERR_FILENO, text);
}

bool stdout_colour() { return colour_on(STDOUT_FILENO); }
bool stderr_colour() { return colour_on(STDERR_FILENO); }

void TerminalLog::write(LogLevel level, std::string_view message) {
  if (level == LogLevel::debug && !verbose_) return;
  if (level == LogLevel::info && quiet_) return;
  const bool warning = level == LogLevel::warning;
  write_stderr_line(report::painted(
      fmt::format("{}{}", warning ? "warning: " : "", printable(message, std::string::npos)),
      warning ? report::Paint::bad : report::Paint::dim, stderr_colour()));
}

ProgressBar::ProgressBar(std::string label, bool quiet)
    : label_(std::move(label)), enabled_(!quiet && isatty(STDERR_FILENO)) {}

void ProgressBar::update(double fraction) {
  if (!enabled_) return;
  const int64_t now = measure::now_ns();
  if (drawn_ns_ != 0 && now - drawn_ns_ < kRedrawNs) return;
  drawn_ns_ = now;
  const double clamped = std::clamp(fraction, 0.0, 1.0);
  const int full = static_cast<int>(clamped * kBarWidth);
  write_all(STDERR_FILENO,
            fmt::format("{}{} [{}{}] {:3.0f} %", kEraseLine, label_,
                        std::string(static_cast<size_t>(full), '#'),
                        std::string(static_cast<size_t>(kBarWidth - full), '.'), 100 * clamped));
  bar_shown = true;
}

void ProgressBar::clear() {
  if (bar_shown) write_all(STDERR_FILENO, kEraseLine);
  bar_shown = false;
}

}  // namespace fathom::cli

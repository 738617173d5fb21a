// SPDX-License-Identifier: Apache-2.0
// The signal handlers: SIGINT sets one flag and then ends the program; SIGPIPE is ignored.
#include "cli/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include "base/error.hpp"

namespace fathom::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set inside a signal handler");

void on_interrupt(int) {
  if (interrupt_flag.exchange(true)) _exit(exit_status(ErrorCode::cancelled));
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  // A closed pipe shows as EPIPE in write_stdout().
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

const std::atomic<bool>& interrupted() { return interrupt_flag; }

}  // namespace fathom::cli

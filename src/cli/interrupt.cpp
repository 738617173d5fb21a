// SPDX-License-Identifier: Apache-2.0
// The signal handlers: SIGINT sets one flag and then ends the program, unless the program was
// started with it ignored; SIGPIPE and SIGXFSZ show as errors of the write instead.
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
  struct sigaction inherited {};
  sigaction(SIGINT, nullptr, &inherited);
  if (inherited.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);  // EPIPE in write_stdout()
  sigaction(SIGXFSZ, &action, nullptr);  // EFBIG in OutputFile
}

const std::atomic<bool>& interrupted() { return interrupt_flag; }

}  // namespace fathom::cli

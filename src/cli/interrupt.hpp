// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: the first one asks the work to stop at the next token, the second ends the program at
// once. Both end with exit status 130.
#pragma once

#include <atomic>

namespace fathom::cli {

void install_interrupt_handler();
const std::atomic<bool>& interrupted();

}  // namespace fathom::cli

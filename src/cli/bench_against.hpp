// SPDX-License-Identifier: Apache-2.0
// Two programs in turns: every round runs this program, this program again (the A/A twin) and
// another fathom in random order, each as a process of its own with the same arguments. Rounds pair
// their rows, so that a slow minute of the machine hits all three; and processes differ in where
// memory and code lie, which one process cannot show.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.hpp"
#include "report/bench_comparison.hpp"
#include "report/result.hpp"

namespace fathom::cli {

struct AgainstOptions {
  std::string program;  // the baseline
  int rounds;
  uint64_t seed;
};

// The document, comparison included. Throws Error{unavailable} when the program cannot be run,
// Error{cancelled}, and Error{internal} with its last words when one of the two fails.
report::Result bench_against(const AgainstOptions& options, const Context& context);

// The arguments of a child: ours without what prints, compares and repeats.
std::vector<std::string> child_arguments(const std::vector<std::string>& arguments);

}  // namespace fathom::cli

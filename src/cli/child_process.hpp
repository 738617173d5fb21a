// SPDX-License-Identifier: Apache-2.0
// This program once more as a child, for what must not happen in this process: a profiler that has
// once watched a process stays in it. What the child writes to stdout comes back through a pipe;
// its stderr is this one's.
#pragma once

#include <string>
#include <vector>

namespace fathom::cli {

struct ChildResult {
  int status = 0;  // 128 and the signal's number where one ended it
  std::string text;
};

// With `arguments` (the program's name first) and then `more`. Throws Error{cancelled} after an
// interrupt, Error{internal} when there is no child.
ChildResult run_child(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& more);

// Throws what the child threw, by its exit status; `what` names it: "the process that watches".
void require_success(const ChildResult& result, const std::string& what);

}  // namespace fathom::cli

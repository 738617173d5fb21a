// SPDX-License-Identifier: Apache-2.0
// The instruction sets that Fathom has code for, and whether this CPU can run them: the one rule
// that kernels, measurements and reports share; and how it reads memory.
#pragma once

#include <span>
#include <string_view>

namespace fathom {

struct CpuIsa {
  const char* name;
  const char* needs;  // for people
  bool usable;        // on this machine
};

// Best first; the last, "scalar", is always usable.
std::span<const CpuIsa> cpu_isas();
// False for a name that is not in the list.
bool cpu_isa_usable(std::string_view name);
// Whether this CPU's own prefetchers follow a stream of loads better than with software's help:
// AMD.
bool cpu_reads_ahead();

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// What device code a kernel's symbol stands for: the binaries that register it when the library is
// loaded, which are kept as they stand in it. Registration is wrapped like launches
// (launch_count.hpp).
#pragma once

#include <cstdint>
#include <string>

namespace fathom::cuda {

// Of all binaries with a kernel of this mangled name, in the order in which they are registered; 0
// where none is.
uint64_t kernel_code_hash(const std::string& mangled);

}  // namespace fathom::cuda

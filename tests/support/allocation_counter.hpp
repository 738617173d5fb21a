// SPDX-License-Identifier: Apache-2.0
// Counts what C++ code of a test program and of the library allocates. Link
// allocation_counter.cpp into the program: it replaces operator new.
#pragma once

#include <cstdint>

namespace fathom::test {

int64_t allocation_count();

}  // namespace fathom::test

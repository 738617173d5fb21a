// SPDX-License-Identifier: Apache-2.0
// Counts what C++ code of a test program and of the library allocates. Link
// allocation_counter.cpp into the program: it replaces operator new.
#pragma once

#include <cstdint>

namespace fathom::test {

// Of all threads, freed or not.
int64_t allocation_count();
int64_t allocation_bytes();

}  // namespace fathom::test

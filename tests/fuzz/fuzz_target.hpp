// SPDX-License-Identifier: Apache-2.0
// What a fuzz target is: one file fuzz_<name>.cpp with these two functions. The same file becomes
// a libFuzzer program (preset fuzz) and a replay test of `make test`; CMakeLists.txt lists it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Feeds one input. An input that is refused throws inside and is caught there: whatever leaves
// this function as an exception, a signal or a sanitizer's report is a bug.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fathom::fuzz {

// Where the fuzzer starts: generated, never stored.
std::vector<std::string> seeds();

}  // namespace fathom::fuzz

// SPDX-License-Identifier: Apache-2.0
// The name of a file's mix of types, as llama.cpp spells it ("Q4_K_M").
#pragma once

#include <string>

#include "gguf/gguf_file.hpp"

namespace fathom {

// From general.file_type; without it, the type that holds most of the bytes.
std::string file_type_name(const gguf::File& file);

}  // namespace fathom

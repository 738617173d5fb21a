// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file.
#pragma once

#include "gguf/gguf_file.hpp"
#include "text/tokenizer.hpp"

namespace fathom {

// It has views of `file`, which must outlive it. Throws Error{bad_file} when a key is missing, of
// the wrong type or damaged, and Error{unsupported} for a tokenizer without code here; both name
// the key and its offset.
text::Tokenizer tokenizer_from_gguf(const gguf::File& file);

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a GGUF file in the tokenizer's terms.
#pragma once

#include "gguf/gguf_file.hpp"
#include "text/tokenizer.hpp"

namespace fathom {

// The token texts are views of `file`, which must outlive whatever is made of them. Throws
// Error{bad_file} when a key is missing or of the wrong type.
text::VocabData vocab_from_gguf(const gguf::File& file);

}  // namespace fathom

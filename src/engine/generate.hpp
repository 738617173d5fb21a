// SPDX-License-Identifier: Apache-2.0
// The loop that makes text: step, sample, emit, stop.
#pragma once

#include <span>

#include "engine/sequence.hpp"
#include "fathom/types.hpp"

namespace fathom::engine {

// Appends the prompt to the sequence and goes on until something ends it; see GenerateOptions. The
// sequence's stats say how it went, also after an Error{cancelled}.
GenerateResult generate(Sequence& sequence, std::span<const int32_t> prompt,
                        const GenerateOptions& options);

}  // namespace fathom::engine

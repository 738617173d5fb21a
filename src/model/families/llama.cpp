// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3, SmolLM2, Mistral. Their files store the rows of attn_q and attn_k permuted, so
// that rotation pairs are neighbours. Biases occur in derived models only.
#include "model/families/family.hpp"

namespace fathom {

const Family kLlama{
    .architecture = "llama",
    .rope_pairs = RopePairs::interleaved,
    .qkv_bias = Presence::optional,
    .output_bias = Presence::optional,
    .ffn_down_bias = Presence::optional,
    .qk_norm = Presence::absent,
    .rope_freqs = Presence::optional,
};

}  // namespace fathom

// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: biases on q, k and v; rotation pairs half a head apart.
#include "model/families/family.hpp"

namespace fathom {

const Family kQwen2{
    .architecture = "qwen2",
    .rope_pairs = RopePairs::half_split,
    .qkv_bias = Presence::required,
    .output_bias = Presence::absent,
    .ffn_down_bias = Presence::absent,
    .qk_norm = Presence::absent,
    .rope_freqs = Presence::absent,
};

}  // namespace fathom

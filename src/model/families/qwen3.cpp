// SPDX-License-Identifier: Apache-2.0
// Qwen3 (dense): q and k are normalised per head before the rotation; no biases.
#include "model/families/family.hpp"

namespace fathom {

const Family kQwen3{
    .architecture = "qwen3",
    .rope_pairs = RopePairs::half_split,
    .qkv_bias = Presence::absent,
    .output_bias = Presence::absent,
    .ffn_down_bias = Presence::absent,
    .qk_norm = Presence::required,
    .rope_freqs = Presence::absent,
};

}  // namespace fathom

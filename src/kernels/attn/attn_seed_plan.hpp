// SPDX-License-Identifier: Apache-2.0
// What of the seed's attention needs no GPU: which variants there are, their names, refusals and
// scratch.
#pragma once

#include <array>
#include <string>

#include "kernels/attn/attn_seed.hpp"

namespace fathom::cuda {

inline constexpr int kAttnSeedSplits[] = {32, 4, 8, 16, 64, 128};
inline constexpr int kAttnSeedStagings[] = {4, 8, 16};
struct AttnSeedShape {
  int warps, window;
};
inline constexpr AttnSeedShape kAttnSeedShapes[] = {{1, 4},  {1, 16},  {1, 256},
                                                    {4, 16}, {4, 256}, {8, 256}};
inline constexpr int kAttnSeedMaxSplits = 128;
inline constexpr size_t kAttnSeedVariants =
    std::size(kAttnSeedSplits) * std::size(kAttnSeedStagings) * 2 * std::size(kAttnSeedShapes);

// All that are built; the first is the base. Bits may depend on splits, and on warps and window
// where there are several warps.
inline constexpr auto kAttnSeedKnobs = [] {
  std::array<AttnSeedKnobs, kAttnSeedVariants> out{};
  size_t i = 0;
  for (const int splits : kAttnSeedSplits) {
    for (const int staging : kAttnSeedStagings) {
      for (const bool stages_values : {false, true}) {
        for (const AttnSeedShape& shape : kAttnSeedShapes)
          out[i++] = {splits, staging, stages_values, shape.warps, shape.window};
      }
    }
  }
  return out;
}();

std::string attn_seed_name(const AttnSeedKnobs& knobs);
// Throws Error{unsupported} for what there is no kernel for.
void check_attn_seed(const AttnArgs::Static& s);
// Of the states of all splits; throws as check_attn_seed does.
int64_t attn_seed_scratch_bytes(const AttnArgs::Static& s);

}  // namespace fathom::cuda

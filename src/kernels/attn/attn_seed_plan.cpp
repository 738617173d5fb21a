// SPDX-License-Identifier: Apache-2.0
// Names, refusals by name, and the scratch for the largest number of splits.
#include "kernels/attn/attn_seed_plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/attn/attn_plan.hpp"

namespace fathom::cuda {

std::string attn_seed_name(const AttnSeedKnobs& k) {
  const AttnSeedKnobs base;
  std::string out = "seed";
  const auto add = [&](const char* knob, int value, int of_base) {
    if (value != of_base) out += fmt::format("{}{}={}", out == "seed" ? ":" : ",", knob, value);
  };
  add("splits", k.splits, base.splits);
  add("staging", k.staging, base.staging);
  add("values", k.stages_values, base.stages_values);
  add("warps", k.warps, base.warps);
  add("window", k.window, base.window);
  return out;
}

void check_attn_seed(const AttnArgs::Static& s) {
  check_attn_cuda(s);
  if (s.kv.geometry.format != KvFormat::f16) {
    fail(ErrorCode::unsupported, "the seed's attention reads an f16 cache, not {}",
         kv_format_name(s.kv.geometry.format));
  }
  if (s.head_dim != 64 && s.head_dim != 128) {
    fail(ErrorCode::unsupported, "head dim {}: the seed's attention has 64 and 128", s.head_dim);
  }
}

int64_t attn_seed_scratch_bytes(const AttnArgs::Static& s) {
  check_attn_seed(s);
  const int64_t n_rows = std::min<int64_t>(s.max_rows, kAttnSeedMaxRows);
  const int64_t bytes = n_rows * s.n_heads * kAttnSeedMaxSplits * (s.head_dim + 2) * 4;
  return (bytes + 63) / 64 * 64;
}

}  // namespace fathom::cuda

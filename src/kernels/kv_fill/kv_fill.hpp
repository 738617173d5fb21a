// SPDX-License-Identifier: Apache-2.0
// kv_fill: random keys and values for cached tokens that no prompt made, so that a step can be
// measured at any depth without a prefill of that depth. Not part of a step.
//   x[t, head, dim] = mean[head, dim] + sigma[head, dim] * z(t, head, dim),  t = begin..end-1
// mean and sigma are those of the cached tokens 0..begin-1, at most kKvFillSource of them: a real
// prefill's keys (after the rotation) and values. z is the sum of four uniform bytes, scaled.
#pragma once

#include <vector>

#include "base/cost.hpp"
#include "kernels/common/kv_ref.hpp"
#include "kernels/exec_context.hpp"
#include "kernels/kv_fill/kv_noise.cuh"
#include "tensor/kv_view.hpp"

namespace fathom {

inline constexpr int64_t kKvFillSource = 256;

struct KvFillArgs {
  struct Static {
    KvLayerView kv;
    int layer;
  } s;
  const int32_t* pages;  // of the sequence
  int64_t begin, end;    // tokens; REQUIRES: begin >= 1
  uint64_t seed;
};

Cost cost(const KvFillArgs& args);
void kv_fill_ref(ExecContext& ctx, const KvFillArgs& args);
void kv_fill_cpu(ExecContext& ctx, const KvFillArgs& args);
void kv_fill_cuda(ExecContext& ctx, const KvFillArgs& args);

// Mean and deviation of each dim of one head over the source tokens. A head that is zero throughout
// counts as sigma 1: nothing is ever measured on zeros.
struct KvSpread {
  std::vector<double> mean, sigma;  // [head_dim]
};
KvSpread kv_spread(const KvFillArgs& args, KvPart part, int kv_head);

}  // namespace fathom
